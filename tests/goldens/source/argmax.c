void* memcpy(void*, const void*, unsigned long);
static inline float bits_u32_f32(unsigned a) { float r; memcpy(&r, &a, 4); return r; }
int argmax(void** args) {
  const float* restrict const p0 = args[0];
  int* restrict const p1 = args[1];
  for (int k0 = 0; k0 < 5; ++k0) {
    float argmax0[1];
    int argmax1[1];
    _Alignas(64) float argmax2[8];
    _Alignas(64) int argmax3[8];
    argmax0[0] = bits_u32_f32(0xff800000u);
    argmax1[0] = 2147483647;
    for (int v1 = 0; v1 < 8; ++v1) {
      argmax2[v1] = bits_u32_f32(0xff800000u);
      argmax3[v1] = 2147483647;
    }
    const int at0 = k0 * 777;
    for (int k1 = 0; k1 < 98; ++k1) {
      const int at1 = k1 * 8;
      const int at2 = at0 + at1;
      #pragma GCC unroll 1
      for (int v1 = 0; v1 < 8; ++v1) {
        const float val0 = argmax2[v1];
        const int at3 = at1 + v1;
        const _Bool ok0 = at3 < 777;
        const float val1 = ok0 ? (ok0 ? p0[at2 + v1] : 0.0f) : bits_u32_f32(0xff800000u);
        const _Bool ok1 = val1 != val1;
        const _Bool ok2 = val0 != val0;
        const int val2 = ok0 ? (int)at3 : 2147483647;
        const int val3 = argmax3[v1];
        const _Bool ok3 = val0 < val1 || ok1 && !ok2 || (val0 == val1 || ok2 && ok1) && val2 < val3;
        argmax2[v1] = ok3 ? val1 : val0;
        argmax3[v1] = ok3 ? val2 : val3;
      }
    }
    for (int v1 = 0; v1 < 8; ++v1) {
      const float val4 = argmax0[0];
      const float val5 = argmax2[v1];
      const _Bool ok4 = val5 != val5;
      const _Bool ok5 = val4 != val4;
      const int val6 = argmax3[v1];
      const int val7 = argmax1[0];
      const _Bool ok6 = val4 < val5 || ok4 && !ok5 || (val4 == val5 || ok5 && ok4) && val6 < val7;
      argmax0[0] = ok6 ? val5 : val4;
      argmax1[0] = ok6 ? val6 : val7;
    }
    p1[k0] = argmax1[0];
  }
  return 0;
}
