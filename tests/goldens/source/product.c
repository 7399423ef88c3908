float fmaf(float, float, float);
int product(void** args) {
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  #pragma omp parallel for
  for (int g0 = 0; g0 < 16; ++g0) {
    const int at0 = g0 * 192;
    const int at1 = g0 * 400;
    #pragma GCC unroll 1
    for (int k1 = 0; k1 < 6; ++k1) {
      _Alignas(64) float acc0[32];
      const int at2 = k1 * 8;
      const int at3 = at0 + at2;
      #pragma GCC unroll 4
      for (int u0 = 0; u0 < 4; ++u0) {
        const int at4 = u0 * 8;
        for (int v1 = 0; v1 < 8; ++v1) {
          acc0[at4 + v1] = 0.0f;
        }
      }
      #pragma GCC unroll 1
      for (int k2 = 0; k2 < 100; ++k2) {
        const int at5 = at1 + k2;
        const int at6 = at2 + k2 * 48;
        #pragma GCC unroll 4
        for (int u0 = 0; u0 < 4; ++u0) {
          const int at7 = u0 * 8;
          const float val0 = p0[at5 + u0 * 100];
          #pragma GCC unroll 1
          for (int v1 = 0; v1 < 8; ++v1) {
            acc0[at7 + v1] = fmaf(val0, p1[at6 + v1], acc0[at7 + v1]);
          }
        }
      }
      #pragma GCC unroll 4
      for (int u0 = 0; u0 < 4; ++u0) {
        const int at8 = at3 + u0 * 48;
        const int at9 = u0 * 8;
        for (int v1 = 0; v1 < 8; ++v1) {
          p2[at8 + v1] = acc0[at9 + v1];
        }
      }
    }
  }
  return 0;
}
