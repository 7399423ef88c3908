extern "C" __global__ void __launch_bounds__(128) padded(const float* __restrict__ p0, float* __restrict__ p1) {
  const int gidx1 = blockIdx.x;
  const int gidx0 = blockIdx.y;
  const int lidx1 = threadIdx.x;
  const int lidx0 = threadIdx.y;
  const int at0 = gidx1 * 16;
  const int at1 = gidx0 * 528 + at0 + lidx0 * 33 + lidx1;
  const int at2 = gidx0 * 16 + lidx0;
  const bool ok0 = at2 < 70;
  const int at3 = at0 + lidx1;
  const int at4 = gidx0 * -16 + gidx1 * 1120 + lidx0 * -1 + lidx1 * 70;
  const bool ok1 = at2 < 73;
  #pragma unroll 1
  for (int k1 = 0; k1 < 2; ++k1) {
    const int at5 = k1 * 8;
    const int at6 = at3 + at5;
    const bool ok2 = ok0 && at6 < 31 && 0 < at6;
    const bool ok3 = at6 < 33;
    if (ok1 && ok3) p1[at1 + at5] = ok2 ? (ok2 && ok1 && ok3 ? p0[at4 + k1 * 560 - 1] : 0.0f) : 7.0f;
  }
}
