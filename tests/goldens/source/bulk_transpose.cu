struct __align__(64) TensorMap { unsigned long long words[16]; };
__device__ __forceinline__ unsigned ptx_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void ptx_mbarrier_init(void* mbarrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(ptx_shared(mbarrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void ptx_mbarrier_wait(void* mbarrier, unsigned parity) {
  unsigned done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
    : "=r"(done) : "r"(ptx_shared(mbarrier)), "r"(parity) : "memory");
  while (!done);
}
__device__ __forceinline__ void ptx_mbarrier_arrive(void* mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(ptx_shared(mbarrier)) : "memory");
}
__device__ __forceinline__ void ptx_mbarrier_expect(void* mbarrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(ptx_shared(mbarrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void ptx_bulk_load_2d(void* to, const TensorMap* map, const void* mbarrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%4,%3}], [%2];" :: "r"(ptx_shared(to)), "l"(map), "r"(ptx_shared(mbarrier)), "r"(c0), "r"(c1) : "memory");
}
extern "C" __global__ void __launch_bounds__(96) bulk_transpose(const float* __restrict__ p0, float* __restrict__ p1, const __grid_constant__ TensorMap map0) {
  const int gidx0 = blockIdx.x;
  const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  const int lane3 = (int)threadIdx.x % 32;
  const int warp2 = warp;
  __shared__ __align__(8) unsigned long long full0[2];
  __shared__ __align__(8) unsigned long long empty1[2];
  __shared__ __align__(1024) float ring0[2048];
  const bool ok0 = lane3 == 0;
  if (warp2 == 0 && ok0) {
    ptx_mbarrier_init(&full0[0], 1);
    ptx_mbarrier_init(&empty1[0], 2);
    ptx_mbarrier_init(&full0[1], 1);
    ptx_mbarrier_init(&empty1[1], 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int at0 = warp2 * 16;
  const int at1 = gidx0 * 32;
  const int at2 = at1 + lane3;
  const int at3 = lane3 * 32;
  if (warp < 2) {
    // role readers
    #pragma unroll 1
    for (int i4 = 0; i4 < 4; ++i4) {
      const int at4 = i4 % 2;
      ptx_mbarrier_wait(&full0[at4], i4 / 2 % 2);
      const int at5 = i4 * 32;
      const int at6 = at4 * 1024;
      #pragma unroll 1
      for (int i5 = 0; i5 < 16; ++i5) {
        const int at7 = at0 + i5;
        const int at8 = at3 + at7;
        const float val0 = ring0[at6 + (at8 ^ at8 / 32 % 8 * 4)];
        p1[(at5 + at7) * 64 + at2] = val0;
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp(0xffffffffu);
      if (ok0) {
        ptx_mbarrier_arrive(&empty1[at4]);
      }
    }
  }
  else {
    // role producer
    if (ok0) {
      #pragma unroll 1
      for (int i6 = 0; i6 < 4; ++i6) {
        const int at9 = i6 % 2;
        ptx_mbarrier_wait(&empty1[at9], 1 - i6 / 2 % 2);
        ptx_mbarrier_expect(&full0[at9], 4096);
        ptx_bulk_load_2d(&ring0[at9 * 1024], &map0, &full0[at9], at1, i6 * 32);
      }
    }
  }
}
