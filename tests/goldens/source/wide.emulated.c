#pragma GCC optimize ("tree-vectorize")
void* memcpy(void*, const void*, unsigned long);
void* memset(void*, int, unsigned long);
int wide(void** args) {
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  for (int gidx0 = 0; gidx0 < 16; ++gidx0) {
    for (int gidx1 = 0; gidx1 < 5; ++gidx1) {
      for (int lidx0 = 0; lidx0 < 4; ++lidx0) {
        for (int lidx1 = 0; lidx1 < 16; ++lidx1) {
          float x0[2];
          float out1[2];
          const int at0 = gidx1 * 32;
          const int at1 = lidx1 * 2;
          const int at2 = gidx0 * 520 + at0 + lidx0 * 130 + at1;
          const _Bool ok0 = at0 + at1 < 130;
          if (ok0) memcpy(&x0[0], &p0[at2], 8); else memset(&x0[0], 0, 8);
          const float val0 = p1[gidx0 * 4 + lidx0];
          #pragma GCC unroll 2
          for (int v1 = 0; v1 < 2; ++v1) {
            out1[v1] = x0[v1] * val0;
          }
          if (ok0) memcpy(&p2[at2], &out1[0], 8);
        }
      }
    }
  }
  return 0;
}
