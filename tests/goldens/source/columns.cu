__device__ __forceinline__ float f16_to_f32(unsigned short a) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r; }
__device__ __forceinline__ unsigned short f32_to_f16(float a) { unsigned r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(a)); return (unsigned short)r; }
extern "C" __global__ void __launch_bounds__(128) columns(const unsigned short* __restrict__ p0, unsigned short* __restrict__ p1) {
  const int gidx0 = blockIdx.x;
  const int lidx0 = threadIdx.x;
  const int lidx1 = threadIdx.y;
  __shared__ __align__(16) float part1[64];
  __align__(16) float acc0[2];
  __align__(16) float acc2[2];
  __align__(16) float out4[2];
  __align__(16) unsigned short out5[2];
  const int at0 = lidx0 * 2;
  const int at1 = gidx0 * 16 + at0;
  #pragma unroll
  for (int v0 = 0; v0 < 2; ++v0) {
    acc0[v0] = 0.0f;
  }
  #pragma unroll
  for (int v0 = 0; v0 < 2; ++v0) {
    acc2[v0] = 0.0f;
  }
  const int at2 = at1 + lidx1 * 48;
  #pragma unroll 1
  for (int k1 = 0; k1 < 7; ++k1) {
    __align__(16) unsigned short x3[2];
    *(unsigned*)&x3[0] = lidx1 + k1 * 16 < 100 ? *(const unsigned*)&p0[at2 + k1 * 768] : 0;
    #pragma unroll
    for (int v0 = 0; v0 < 2; ++v0) {
      acc2[v0] = acc2[v0] + f16_to_f32(x3[v0]);
    }
  }
  #pragma unroll
  for (int v0 = 0; v0 < 2; ++v0) {
    const float val0 = acc2[v0];
    const float val1 = __shfl_xor_sync(0xffffffffu, val0, 16);
    const float val2 = val0 + val1;
    const float val3 = __shfl_xor_sync(0xffffffffu, val2, 8);
    out4[v0] = val2 + val3;
  }
  if (lidx1 % 4 == 0) *(float2*)&part1[at0 + lidx1 / 4 * 16] = *(const float2*)&out4[0];
  __syncthreads();
  #pragma unroll
  for (int v0 = 0; v0 < 2; ++v0) {
    #pragma unroll
    for (int w1 = 0; w1 < 4; ++w1) {
      const float val4 = part1[at0 + w1 * 16 + v0];
      acc0[v0] = acc0[v0] + val4;
    }
  }
  #pragma unroll
  for (int v0 = 0; v0 < 2; ++v0) {
    out5[v0] = f32_to_f16(acc0[v0]);
  }
  if (lidx1 == 0) *(unsigned*)&p1[at1] = *(const unsigned*)&out5[0];
}
