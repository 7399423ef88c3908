#pragma GCC optimize ("tree-vectorize")
static inline short floordiv_i16(short a, short b) {
  if (b == 0) return 0;
  if (b == -1) return (short)(0 - (unsigned)a);
  short q = (short)(a / b);
  return a % b != 0 && (a < 0) != (b < 0) ? (short)(q - 1) : q;
}
int mixed(void** args) {
  const short* restrict const p0 = args[0];
  const short* restrict const p1 = args[1];
  unsigned char* restrict const p2 = args[2];
  for (int gidx0 = 0; gidx0 < 2; ++gidx0) {
    for (int lidx0 = 0; lidx0 < 32; ++lidx0) {
      const int at0 = gidx0 * 32 + lidx0;
      const _Bool ok0 = at0 < 50;
      const short val0 = ok0 ? p0[at0] : 0;
      const short val1 = ok0 ? p1[at0] : 0;
      if (ok0) p2[at0] = (unsigned char)(short)((unsigned)floordiv_i16((short)((unsigned)(short)((unsigned)val0 * (unsigned)val1) + (unsigned)300), val1) - (unsigned)(val0 >> 3));
    }
  }
  return 0;
}
