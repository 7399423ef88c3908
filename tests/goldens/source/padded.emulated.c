#pragma GCC optimize ("tree-vectorize")
int padded(void** args) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  for (int gidx0 = 0; gidx0 < 5; ++gidx0) {
    for (int gidx1 = 0; gidx1 < 3; ++gidx1) {
      for (int lidx0 = 0; lidx0 < 16; ++lidx0) {
        for (int lidx1 = 0; lidx1 < 8; ++lidx1) {
          const int at0 = gidx1 * 16;
          const int at1 = gidx0 * 528 + at0 + lidx0 * 33 + lidx1;
          const int at2 = gidx0 * 16 + lidx0;
          const _Bool ok0 = at2 < 70;
          const int at3 = at0 + lidx1;
          const int at4 = gidx0 * -16 + gidx1 * 1120 + lidx0 * -1 + lidx1 * 70;
          const _Bool ok1 = at2 < 73;
          for (int k1 = 0; k1 < 2; ++k1) {
            const int at5 = k1 * 8;
            const int at6 = at3 + at5;
            const _Bool ok2 = ok0 && at6 < 31 && 0 < at6;
            const _Bool ok3 = at6 < 33;
            if (ok1 && ok3) p1[at1 + at5] = ok2 ? (ok2 && ok1 && ok3 ? p0[at4 + k1 * 560 - 1] : 0.0f) : 7.0f;
          }
        }
      }
    }
  }
  return 0;
}
