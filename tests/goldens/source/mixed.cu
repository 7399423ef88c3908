__device__ __forceinline__ short floordiv_i16(short a, short b) {
  if (b == 0) return 0;
  if (b == -1) return (short)(0 - (unsigned)a);
  short q = (short)(a / b);
  return a % b != 0 && (a < 0) != (b < 0) ? (short)(q - 1) : q;
}
extern "C" __global__ void __launch_bounds__(32) mixed(const short* __restrict__ p0, const short* __restrict__ p1, unsigned char* __restrict__ p2) {
  const int gidx0 = blockIdx.x;
  const int lidx0 = threadIdx.x;
  const int at0 = gidx0 * 32 + lidx0;
  const bool ok0 = at0 < 50;
  const short val0 = ok0 ? p0[at0] : 0;
  const short val1 = ok0 ? p1[at0] : 0;
  if (ok0) p2[at0] = (unsigned char)(short)((unsigned)floordiv_i16((short)((unsigned)(short)((unsigned)val0 * (unsigned)val1) + (unsigned)300), val1) - (unsigned)(val0 >> 3));
}
