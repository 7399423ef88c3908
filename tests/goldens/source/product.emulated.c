float fmaf(float, float, float);
int product(void** args) {
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  for (int gidx0 = 0; gidx0 < 4; ++gidx0) {
    for (int gidx1 = 0; gidx1 < 2; ++gidx1) {
      for (int lidx0 = 0; lidx0 < 8; ++lidx0) {
        for (int lidx1 = 0; lidx1 < 16; ++lidx1) {
          float acc0[4];
          const int at0 = gidx1 * 32;
          const int at1 = gidx0 * 768 + at0 + lidx0 * 48 + lidx1;
          #pragma GCC unroll 2
          for (int u0 = 0; u0 < 2; ++u0) {
            const int at2 = u0 * 2;
            #pragma GCC unroll 2
            for (int u1 = 0; u1 < 2; ++u1) {
              acc0[at2 + u1] = 0.0f;
            }
          }
          const int at3 = gidx0 * 1600 + lidx0 * 100;
          const int at4 = at0 + lidx1;
          for (int k2 = 0; k2 < 25; ++k2) {
            float x1[8];
            float x2[8];
            const int at5 = at3 + k2 * 4;
            #pragma GCC unroll 2
            for (int u0 = 0; u0 < 2; ++u0) {
              const int at6 = u0 * 4;
              const int at7 = at5 + u0 * 800;
              #pragma GCC unroll 4
              for (int u2 = 0; u2 < 4; ++u2) {
                x1[at6 + u2] = p0[at7 + u2];
              }
            }
            const int at8 = at4 + k2 * 192;
            #pragma GCC unroll 2
            for (int u1 = 0; u1 < 2; ++u1) {
              const int at9 = u1 * 4;
              const int at10 = u1 * 16;
              const int at11 = at8 + at10;
              const _Bool ok0 = at0 + at10 < 48;
              #pragma GCC unroll 4
              for (int u2 = 0; u2 < 4; ++u2) {
                x2[at9 + u2] = ok0 ? p1[at11 + u2 * 48] : 0.0f;
              }
            }
            #pragma GCC unroll 2
            for (int u0 = 0; u0 < 2; ++u0) {
              const int at12 = u0 * 2;
              const int at13 = u0 * 4;
              #pragma GCC unroll 2
              for (int u1 = 0; u1 < 2; ++u1) {
                const int at14 = at12 + u1;
                const int at15 = u1 * 4;
                #pragma GCC unroll 4
                for (int u2 = 0; u2 < 4; ++u2) {
                  acc0[at14] = fmaf(x1[at13 + u2], x2[at15 + u2], acc0[at14]);
                }
              }
            }
          }
          #pragma GCC unroll 2
          for (int u0 = 0; u0 < 2; ++u0) {
            const int at16 = at1 + u0 * 384;
            const int at17 = u0 * 2;
            #pragma GCC unroll 2
            for (int u1 = 0; u1 < 2; ++u1) {
              const int at18 = u1 * 16;
              if (at0 + at18 < 48) p2[at16 + at18] = acc0[at17 + u1];
            }
          }
        }
      }
    }
  }
  return 0;
}
