extern "C" __global__ void __launch_bounds__(128) histogram(const int* __restrict__ p0, int* __restrict__ p1) {
  const int gidx0 = blockIdx.x;
  const int lidx1 = threadIdx.x;
  __shared__ __align__(16) int counts0[16];
  const bool ok0 = lidx1 < 16;
  if (ok0) counts0[lidx1] = 0;
  __syncthreads();
  const int at0 = gidx0 * 4;
  #pragma unroll 1
  for (int i4 = 0; i4 < 4; ++i4) {
    atomicAdd(&counts0[(long long)p0[(at0 + i4) * 128 + lidx1]], 1);
  }
  __syncthreads();
  if (ok0) {
    const int val0 = counts0[lidx1];
    atomicAdd(&p1[lidx1], val0);
  }
}
