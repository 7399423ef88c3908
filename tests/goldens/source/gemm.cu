extern "C" __global__ void __launch_bounds__(256) gemm(const float* __restrict__ p0, const float* __restrict__ p1, float* __restrict__ p2) {
  const int gidx1 = blockIdx.x;
  const int gidx0 = blockIdx.y;
  const int lidx1 = threadIdx.x;
  const int lidx0 = threadIdx.y;
  __shared__ __align__(16) float a_tile0[256];
  __shared__ __align__(16) float b_tile1[256];
  float acc0[1];
  const int at0 = (gidx0 * 16 + lidx0) * 64;
  const int at1 = gidx1 * 16 + lidx1;
  acc0[0] = 0.0f;
  const int at2 = lidx0 * 16;
  const int at3 = at2 + lidx1;
  #pragma unroll 1
  for (int r2 = 0; r2 < 4; ++r2) {
    const int at4 = r2 * 16;
    a_tile0[at3] = p0[at0 + (at4 + lidx1)];
    b_tile1[at3] = p1[(at4 + lidx0) * 64 + at1];
    __syncthreads();
    #pragma unroll 1
    for (int r3 = 0; r3 < 16; ++r3) {
      const float val0 = a_tile0[at2 + r3];
      const float val1 = b_tile1[r3 * 16 + lidx1];
      acc0[0] = __fmaf_rn(val0, val1, acc0[0]);
    }
    __syncthreads();
  }
  p2[at0 + at1] = acc0[0];
}
