__device__ __forceinline__ float max_f32(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
extern "C" __global__ void __launch_bounds__(64, 8) softmax(const float* __restrict__ p0, float* __restrict__ p1) {
  const int gidx0 = blockIdx.x;
  const int lidx1 = threadIdx.x;
  __shared__ __align__(16) float part3[2];
  __shared__ __align__(16) float part6[2];
  __align__(16) float x0[16];
  __align__(16) float x1[16];
  float max2[1];
  float max4[1];
  float acc5[1];
  float acc7[1];
  const int at0 = lidx1 * 4;
  const int at1 = gidx0 * 1000 + at0;
  #pragma unroll
  for (int u1 = 0; u1 < 4; ++u1) {
    const int at2 = u1 * 256;
    *(float4*)&x1[u1 * 4] = at0 + at2 < 1000 ? *(const float4*)&p0[at1 + at2] : float4{};
  }
  max2[0] = __int_as_float(0xff800000);
  const int at3 = lidx1 / 32;
  max4[0] = __int_as_float(0xff800000);
  #pragma unroll
  for (int u1 = 0; u1 < 4; ++u1) {
    const bool ok0 = at0 + u1 * 256 < 1000;
    const int at4 = u1 * 4;
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
      max4[0] = max_f32(max4[0], ok0 ? x1[at4 + v1] : __int_as_float(0xff800000));
    }
  }
  const float val0 = max4[0];
  const float val1 = __shfl_xor_sync(0xffffffffu, val0, 16);
  const float val2 = max_f32(val0, val1);
  const float val3 = __shfl_xor_sync(0xffffffffu, val2, 8);
  const float val4 = max_f32(val2, val3);
  const float val5 = __shfl_xor_sync(0xffffffffu, val4, 4);
  const float val6 = max_f32(val4, val5);
  const float val7 = __shfl_xor_sync(0xffffffffu, val6, 2);
  const float val8 = max_f32(val6, val7);
  const float val9 = __shfl_xor_sync(0xffffffffu, val8, 1);
  const bool ok1 = lidx1 % 32 == 0;
  if (ok1) part3[at3] = max_f32(val8, val9);
  __syncthreads();
  #pragma unroll
  for (int w1 = 0; w1 < 2; ++w1) {
    const float val10 = part3[w1];
    max2[0] = max_f32(max2[0], val10);
  }
  const float val11 = max2[0];
  #pragma unroll
  for (int u1 = 0; u1 < 4; ++u1) {
    const int at5 = u1 * 4;
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
      const int at6 = at5 + v1;
      x0[at6] = expf(x1[at6] - val11);
    }
  }
  acc5[0] = 0.0f;
  acc7[0] = 0.0f;
  #pragma unroll
  for (int u1 = 0; u1 < 4; ++u1) {
    const bool ok2 = at0 + u1 * 256 < 1000;
    const int at7 = u1 * 4;
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
      acc7[0] = acc7[0] + (ok2 ? x0[at7 + v1] : 0.0f);
    }
  }
  const float val12 = acc7[0];
  const float val13 = __shfl_xor_sync(0xffffffffu, val12, 16);
  const float val14 = val12 + val13;
  const float val15 = __shfl_xor_sync(0xffffffffu, val14, 8);
  const float val16 = val14 + val15;
  const float val17 = __shfl_xor_sync(0xffffffffu, val16, 4);
  const float val18 = val16 + val17;
  const float val19 = __shfl_xor_sync(0xffffffffu, val18, 2);
  const float val20 = val18 + val19;
  const float val21 = __shfl_xor_sync(0xffffffffu, val20, 1);
  if (ok1) part6[at3] = val20 + val21;
  __syncthreads();
  #pragma unroll
  for (int w1 = 0; w1 < 2; ++w1) {
    const float val22 = part6[w1];
    acc5[0] = acc5[0] + val22;
  }
  const float val23 = acc5[0];
  #pragma unroll
  for (int u1 = 0; u1 < 4; ++u1) {
    __align__(16) float out8[4];
    const int at8 = u1 * 256;
    const int at9 = u1 * 4;
    #pragma unroll
    for (int v1 = 0; v1 < 4; ++v1) {
      out8[v1] = x0[at9 + v1] / val23;
    }
    if (at0 + at8 < 1000) *(float4*)&p1[at1 + at8] = *(const float4*)&out8[0];
  }
}
