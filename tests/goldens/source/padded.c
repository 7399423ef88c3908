int padded(void** args) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  for (int k0 = 0; k0 < 10; ++k0) {
    const int at0 = k0 * 264;
    const int at1 = k0 * 8;
    const int at2 = k0 * -8;
    for (int k1 = 0; k1 < 5; ++k1) {
      const int at3 = k1 * 8;
      const int at4 = at0 + at3;
      const int at5 = at2 + k1 * 560;
      for (int t0 = 0; t0 < 8; ++t0) {
        const int at6 = at4 + t0 * 33;
        const int at7 = at1 + t0;
        const _Bool ok0 = at7 < 70;
        const int at8 = at5 + t0 * -1;
        const _Bool ok1 = at7 < 73;
        for (int t1 = 0; t1 < 8; ++t1) {
          const int at9 = at3 + t1;
          const _Bool ok2 = ok0 && at9 < 31 && 0 < at9;
          const _Bool ok3 = at9 < 33;
          if (ok1 && ok3) p1[at6 + t1] = ok2 ? (ok2 && ok1 && ok3 ? p0[at8 + t1 * 70 - 1] : 0.0f) : 7.0f;
        }
      }
    }
  }
  return 0;
}
