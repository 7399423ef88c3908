extern "C" __global__ void __launch_bounds__(96) compact(const int* __restrict__ p0, int* __restrict__ p1, unsigned* __restrict__ p2) {
  const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  const int lane3 = (int)threadIdx.x % 32;
  const int warp2 = warp;
  const int at0 = warp2 * 32;
  const int val0 = p0[at0 + lane3];
  const bool ok0 = 0 < val0;
  const unsigned val1 = __ballot_sync(0xffffffffu, ok0);
  const unsigned val2 = (unsigned)lane3;
  const unsigned val3 = val1 & (1u << val2) - 1u;
  const unsigned val4 = val3 - (val3 >> 1u & 1431655765u);
  const unsigned val5 = (val4 & 858993459u) + (val4 >> 2u & 858993459u);
  const unsigned val6 = (val5 + (val5 >> 4u) & 252645135u) * 16843009u >> 24u;
  const unsigned val7 = val1 - (val1 >> 1u & 1431655765u);
  const unsigned val8 = (val7 & 858993459u) + (val7 >> 2u & 858993459u);
  const unsigned val9 = (val8 + (val8 >> 4u) & 252645135u) * 16843009u >> 24u;
  p1[at0 + (long long)(ok0 ? val6 : val9 + (val2 - val6))] = val0;
  if (lane3 == 0) p2[warp2] = val9;
}
