extern "C" __global__ void __launch_bounds__(64) wide(const float* __restrict__ p0, const float* __restrict__ p1, float* __restrict__ p2) {
  const int gidx1 = blockIdx.x;
  const int gidx0 = blockIdx.y;
  const int lidx1 = threadIdx.x;
  const int lidx0 = threadIdx.y;
  __align__(16) float x0[2];
  __align__(16) float out1[2];
  const int at0 = gidx1 * 32;
  const int at1 = lidx1 * 2;
  const int at2 = gidx0 * 520 + at0 + lidx0 * 130 + at1;
  const bool ok0 = at0 + at1 < 130;
  *(float2*)&x0[0] = ok0 ? *(const float2*)&p0[at2] : float2{};
  const float val0 = p1[gidx0 * 4 + lidx0];
  #pragma unroll
  for (int v1 = 0; v1 < 2; ++v1) {
    out1[v1] = x0[v1] * val0;
  }
  if (ok0) *(float2*)&p2[at2] = *(const float2*)&out1[0];
}
