int wide(void** args) {
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  #pragma omp parallel for
  for (int g0 = 0; g0 < 32; ++g0) {
    const int at0 = g0 * 260;
    const int at1 = g0 * 2;
    for (int k1 = 0; k1 < 17; ++k1) {
      const int at2 = k1 * 8;
      const int at3 = at0 + at2;
      #pragma GCC unroll 2
      for (int u0 = 0; u0 < 2; ++u0) {
        const int at4 = at3 + u0 * 130;
        const float val0 = p1[at1 + u0];
        for (int v1 = 0; v1 < 8; ++v1) {
          const int at5 = at4 + v1;
          const _Bool ok0 = at2 + v1 < 130;
          if (ok0) p2[at5] = (ok0 ? p0[at5] : 0.0f) * val0;
        }
      }
    }
  }
  return 0;
}
