extern "C" __global__ void __launch_bounds__(128) argmax(const float* __restrict__ p0, int* __restrict__ p1) {
  const int gidx0 = blockIdx.x;
  const int lidx1 = threadIdx.x;
  const int lidx0 = threadIdx.y;
  __shared__ __align__(16) float part2[4];
  __shared__ __align__(16) int part3[4];
  float argmax0[1];
  int argmax1[1];
  float argmax4[1];
  int argmax5[1];
  __align__(16) float argmax6[2];
  __align__(16) int argmax7[2];
  const int at0 = gidx0 * 2 + lidx0;
  argmax0[0] = __int_as_float(0xff800000);
  argmax1[0] = 2147483647;
  const int at1 = lidx0 + lidx1 / 32 * 2;
  argmax4[0] = __int_as_float(0xff800000);
  argmax5[0] = 2147483647;
  #pragma unroll
  for (int u1 = 0; u1 < 2; ++u1) {
    argmax6[u1] = __int_as_float(0xff800000);
    argmax7[u1] = 2147483647;
  }
  const int at2 = gidx0 * 1554 + lidx0 * 777 + lidx1;
  const bool ok0 = at0 < 5;
  #pragma unroll 1
  for (int k1 = 0; k1 < 7; ++k1) {
    __align__(16) float x8[2];
    const int at3 = k1 * 128;
    const int at4 = lidx1 + at3;
    const int at5 = at2 + at3;
    #pragma unroll
    for (int u1 = 0; u1 < 2; ++u1) {
      const int at6 = u1 * 64;
      x8[u1] = ok0 && at4 + at6 < 777 ? p0[at5 + at6] : 0.0f;
    }
    #pragma unroll
    for (int u1 = 0; u1 < 2; ++u1) {
      const float val0 = argmax6[u1];
      const int at7 = at4 + u1 * 64;
      const bool ok1 = at7 < 777;
      const float val1 = ok1 ? x8[u1] : __int_as_float(0xff800000);
      const bool ok2 = val1 != val1;
      const bool ok3 = val0 != val0;
      const int val2 = ok1 ? (int)at7 : 2147483647;
      const int val3 = argmax7[u1];
      const bool ok4 = val0 < val1 || ok2 && !ok3 || (val0 == val1 || ok3 && ok2) && val2 < val3;
      argmax6[u1] = ok4 ? val1 : val0;
      argmax7[u1] = ok4 ? val2 : val3;
    }
  }
  #pragma unroll
  for (int u1 = 0; u1 < 2; ++u1) {
    const float val4 = argmax4[0];
    const float val5 = argmax6[u1];
    const bool ok5 = val5 != val5;
    const bool ok6 = val4 != val4;
    const int val6 = argmax7[u1];
    const int val7 = argmax5[0];
    const bool ok7 = val4 < val5 || ok5 && !ok6 || (val4 == val5 || ok6 && ok5) && val6 < val7;
    argmax4[0] = ok7 ? val5 : val4;
    argmax5[0] = ok7 ? val6 : val7;
  }
  const float val8 = argmax4[0];
  const float val9 = __shfl_xor_sync(0xffffffffu, val8, 16);
  const bool ok8 = val9 != val9;
  const bool ok9 = val8 != val8;
  const int val10 = argmax5[0];
  const int val11 = __shfl_xor_sync(0xffffffffu, val10, 16);
  const bool ok10 = val8 < val9 || ok8 && !ok9 || (val8 == val9 || ok9 && ok8) && val11 < val10;
  const float val12 = ok10 ? val9 : val8;
  const float val13 = __shfl_xor_sync(0xffffffffu, val12, 8);
  const bool ok11 = val13 != val13;
  const bool ok12 = val12 != val12;
  const int val14 = ok10 ? val11 : val10;
  const int val15 = __shfl_xor_sync(0xffffffffu, val14, 8);
  const bool ok13 = val12 < val13 || ok11 && !ok12 || (val12 == val13 || ok12 && ok11) && val15 < val14;
  const float val16 = ok13 ? val13 : val12;
  const float val17 = __shfl_xor_sync(0xffffffffu, val16, 4);
  const bool ok14 = val17 != val17;
  const bool ok15 = val16 != val16;
  const int val18 = ok13 ? val15 : val14;
  const int val19 = __shfl_xor_sync(0xffffffffu, val18, 4);
  const bool ok16 = val16 < val17 || ok14 && !ok15 || (val16 == val17 || ok15 && ok14) && val19 < val18;
  const float val20 = ok16 ? val17 : val16;
  const float val21 = __shfl_xor_sync(0xffffffffu, val20, 2);
  const bool ok17 = val21 != val21;
  const bool ok18 = val20 != val20;
  const int val22 = ok16 ? val19 : val18;
  const int val23 = __shfl_xor_sync(0xffffffffu, val22, 2);
  const bool ok19 = val20 < val21 || ok17 && !ok18 || (val20 == val21 || ok18 && ok17) && val23 < val22;
  const float val24 = ok19 ? val21 : val20;
  const float val25 = __shfl_xor_sync(0xffffffffu, val24, 1);
  const bool ok20 = val25 != val25;
  const bool ok21 = val24 != val24;
  const int val26 = ok19 ? val23 : val22;
  const int val27 = __shfl_xor_sync(0xffffffffu, val26, 1);
  const bool ok22 = val24 < val25 || ok20 && !ok21 || (val24 == val25 || ok21 && ok20) && val27 < val26;
  const bool ok23 = lidx1 % 32 == 0;
  if (ok23) part2[at1] = ok22 ? val25 : val24;
  if (ok23) part3[at1] = ok22 ? val27 : val26;
  __syncthreads();
  #pragma unroll
  for (int w1 = 0; w1 < 2; ++w1) {
    const float val28 = argmax0[0];
    const int at8 = lidx0 + w1 * 2;
    const float val29 = part2[at8];
    const bool ok24 = val29 != val29;
    const bool ok25 = val28 != val28;
    const int val30 = part3[at8];
    const int val31 = argmax1[0];
    const bool ok26 = val28 < val29 || ok24 && !ok25 || (val28 == val29 || ok25 && ok24) && val30 < val31;
    argmax0[0] = ok26 ? val29 : val28;
    argmax1[0] = ok26 ? val30 : val31;
  }
  if (ok0 && lidx1 == 0) p1[at0] = argmax1[0];
}
