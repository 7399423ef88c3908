void* memcpy(void*, const void*, unsigned long);
float expf(float);
static inline float bits_u32_f32(unsigned a) { float r; memcpy(&r, &a, 4); return r; }
static inline unsigned bits_f32_u32(float a) { unsigned r; memcpy(&r, &a, 4); return r; }
static inline float max_f32(float a, float b) {  // NaN wins, -0 < +0
  if (a != a || b != b) return bits_u32_f32(0x7fffffffu);
  if (a == b) return bits_u32_f32(bits_f32_u32(a) & bits_f32_u32(b));
  return a > b ? a : b;
}
int softmax(void** args) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  #pragma omp parallel for
  for (int g0 = 0; g0 < 33; ++g0) {
    float max0[1];
    _Alignas(64) float max1[16];
    float acc2[1];
    _Alignas(64) float acc3[16];
    const int at0 = g0 * 1000;
    max0[0] = bits_u32_f32(0xff800000u);
    for (int v1 = 0; v1 < 16; ++v1) {
      max1[v1] = bits_u32_f32(0xff800000u);
    }
    for (int k1 = 0; k1 < 63; ++k1) {
      const int at1 = k1 * 16;
      const int at2 = at0 + at1;
      #pragma GCC unroll 1
      for (int v1 = 0; v1 < 16; ++v1) {
        const _Bool ok0 = at1 + v1 < 1000;
        max1[v1] = max_f32(max1[v1], ok0 ? (ok0 ? p0[at2 + v1] : 0.0f) : bits_u32_f32(0xff800000u));
      }
    }
    for (int v1 = 0; v1 < 16; ++v1) {
      max0[0] = max_f32(max0[0], max1[v1]);
    }
    const float val0 = max0[0];
    acc2[0] = 0.0f;
    for (int v1 = 0; v1 < 16; ++v1) {
      acc3[v1] = 0.0f;
    }
    for (int k1 = 0; k1 < 63; ++k1) {
      const int at3 = k1 * 16;
      const int at4 = at0 + at3;
      #pragma GCC unroll 1
      for (int v1 = 0; v1 < 16; ++v1) {
        const _Bool ok1 = at3 + v1 < 1000;
        acc3[v1] = acc3[v1] + (ok1 ? expf((ok1 ? p0[at4 + v1] : 0.0f) - val0) : 0.0f);
      }
    }
    for (int v1 = 0; v1 < 16; ++v1) {
      acc2[0] = acc2[0] + acc3[v1];
    }
    const float val1 = acc2[0];
    for (int k1 = 0; k1 < 63; ++k1) {
      const int at5 = k1 * 16;
      const int at6 = at0 + at5;
      for (int v1 = 0; v1 < 16; ++v1) {
        const int at7 = at6 + v1;
        const _Bool ok2 = at5 + v1 < 1000;
        if (ok2) p1[at7] = expf((ok2 ? p0[at7] : 0.0f) - val0) / val1;
      }
    }
  }
  return 0;
}
