extern "C" __global__ void __launch_bounds__(64) divergent(const int* __restrict__ p0, int* __restrict__ p1, int* __restrict__ p2) {
  const int lidx1 = threadIdx.x;
  int value0[1];
  int halved1[1];
  value0[0] = p0[lidx1];
  halved1[0] = 0;
  #pragma unroll 1
  for (int i4 = 0; i4 < 8; ++i4) {
    const int val0 = value0[0];
    if ((val0 & 1) == 0 && val0 != 0) {
      halved1[0] = (int)((unsigned)halved1[0] + (unsigned)1);
      value0[0] = value0[0] >> 1;
    }
  }
  p1[lidx1] = value0[0];
  p2[lidx1] = halved1[0];
}
