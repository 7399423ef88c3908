#pragma GCC optimize ("tree-vectorize")
int axpy(void** args) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  for (int gidx0 = 0; gidx0 < 5; ++gidx0) {
    for (int lidx0 = 0; lidx0 < 64; ++lidx0) {
      const int at0 = gidx0 * 64 + lidx0;
      const _Bool ok0 = at0 < 300;
      if (ok0) p1[at0] = (ok0 ? p0[at0] : 0.0f) * 2.0f + 1.0f;
    }
  }
  return 0;
}
