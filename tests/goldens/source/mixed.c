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
  for (int k0 = 0; k0 < 50; ++k0) {
    const short val0 = p0[k0];
    const short val1 = p1[k0];
    p2[k0] = (unsigned char)(short)((unsigned)floordiv_i16((short)((unsigned)(short)((unsigned)val0 * (unsigned)val1) + (unsigned)300), val1) - (unsigned)(val0 >> 3));
  }
  return 0;
}
