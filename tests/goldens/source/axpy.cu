extern "C" __global__ void __launch_bounds__(64) axpy(const float* __restrict__ p0, float* __restrict__ p1) {
  const int gidx0 = blockIdx.x;
  const int lidx0 = threadIdx.x;
  const int at0 = gidx0 * 64 + lidx0;
  const bool ok0 = at0 < 300;
  if (ok0) p1[at0] = (ok0 ? p0[at0] : 0.0f) * 2.0f + 1.0f;
}
