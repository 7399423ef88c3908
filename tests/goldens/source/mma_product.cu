__device__ __forceinline__ unsigned ptx_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void ptx_cp_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(ptx_shared(to)), "l"(__cvta_generic_to_global(from)) : "memory");
}
__device__ __forceinline__ void ptx_ldmatrix_x4(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(ptx_shared(row)) : "memory");
}
__device__ __forceinline__ void ptx_mma_m16n8k16_bf16(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void __launch_bounds__(128) mma_product(const unsigned short* __restrict__ p0, const unsigned short* __restrict__ p1, float* __restrict__ p2) {
  const int gidx1 = blockIdx.x;
  const int gidx0 = blockIdx.y;
  const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  const int lane3 = (int)threadIdx.x % 32;
  const int warp2 = warp;
  __shared__ __align__(16) unsigned short a0[6144];
  __shared__ __align__(16) unsigned short b1[6144];
  __align__(16) float sum0[32];
  __align__(16) unsigned fragment_b2[8];
  #pragma unroll
  for (int u9 = 0; u9 < 32; ++u9) {
    sum0[u9] = 0.0f;
  }
  const int at0 = 0 % 3 * 2048;
  const int at1 = warp2 * 32 + lane3;
  const int at2 = at1 / 4;
  const int at3 = at1 % 4 * 8;
  const int at4 = at2 * 32 + at3;
  const int at5 = at4 ^ at4 / 64 % 4 * 8;
  const int at6 = at0 + at5;
  const int at7 = gidx0 * 64;
  const int at8 = (at7 + at2) * 128;
  const int at9 = 0 * 32;
  const int at10 = at9 + at3;
  ptx_cp_async_16(&a0[at6], &p0[at8 + at10]);
  const int at11 = at1 + 128;
  const int at12 = at11 / 4;
  const int at13 = at11 % 4 * 8;
  const int at14 = at12 * 32 + at13;
  const int at15 = at14 ^ at14 / 64 % 4 * 8;
  const int at16 = at0 + at15;
  const int at17 = (at7 + at12) * 128;
  const int at18 = at9 + at13;
  ptx_cp_async_16(&a0[at16], &p0[at17 + at18]);
  const int at19 = gidx1 * 64;
  const int at20 = (at19 + at2) * 128;
  ptx_cp_async_16(&b1[at6], &p1[at20 + at10]);
  const int at21 = (at19 + at12) * 128;
  ptx_cp_async_16(&b1[at16], &p1[at21 + at18]);
  asm volatile("cp.async.commit_group;" ::: "memory");
  const int at22 = 1 % 3 * 2048;
  const int at23 = at22 + at5;
  const int at24 = 1 * 32;
  const int at25 = at24 + at3;
  ptx_cp_async_16(&a0[at23], &p0[at8 + at25]);
  const int at26 = at22 + at15;
  const int at27 = at24 + at13;
  ptx_cp_async_16(&a0[at26], &p0[at17 + at27]);
  ptx_cp_async_16(&b1[at23], &p1[at20 + at25]);
  ptx_cp_async_16(&b1[at26], &p1[at21 + at27]);
  asm volatile("cp.async.commit_group;" ::: "memory");
  const int at28 = warp2 / 2 * 32;
  const int at29 = lane3 % 8;
  const int at30 = lane3 / 8 % 2 * 8;
  const int at31 = at29 + at30;
  const int at32 = (at28 + (at31 + 0)) * 32;
  const int at33 = lane3 / 16 % 2 * 8;
  const int at34 = (at28 + (at31 + 16)) * 32;
  const int at35 = warp2 % 2 * 32;
  const int at36 = at29 + at33;
  const int at37 = (at35 + (at36 + 0)) * 32;
  const int at38 = (at35 + (at36 + 16)) * 32;
  #pragma unroll 1
  for (int i4 = 0; i4 < 4; ++i4) {
    const int at39 = i4 + 2;
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    const int at40 = at39 % 3 * 2048;
    const int at41 = at40 + at5;
    const int at42 = at39 * 32;
    const int at43 = at42 + at3;
    const int at44 = at8 + at43;
    const int at45 = at40 + at15;
    const int at46 = at42 + at13;
    const int at47 = at17 + at46;
    const int at48 = at20 + at43;
    const int at49 = at21 + at46;
    if (at39 < 4) {
      ptx_cp_async_16(&a0[at41], &p0[at44]);
      ptx_cp_async_16(&a0[at45], &p0[at47]);
      ptx_cp_async_16(&b1[at41], &p1[at48]);
      ptx_cp_async_16(&b1[at45], &p1[at49]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    const int at50 = i4 % 3 * 2048;
    #pragma unroll
    for (int u5 = 0; u5 < 2; ++u5) {
      __align__(16) unsigned fragment_a1[8];
      const int at51 = u5 * 16;
      const int at52 = at51 + at33;
      const int at53 = at32 + at52;
      ptx_ldmatrix_x4(&fragment_a1[0], &a0[at50 + (at53 ^ at53 / 64 % 4 * 8)]);
      const int at54 = at34 + at52;
      ptx_ldmatrix_x4(&fragment_a1[4], &a0[at50 + (at54 ^ at54 / 64 % 4 * 8)]);
      const int at55 = at51 + at30;
      const int at56 = at37 + at55;
      ptx_ldmatrix_x4(&fragment_b2[0], &b1[at50 + (at56 ^ at56 / 64 % 4 * 8)]);
      const int at57 = at38 + at55;
      ptx_ldmatrix_x4(&fragment_b2[4], &b1[at50 + (at57 ^ at57 / 64 % 4 * 8)]);
      #pragma unroll
      for (int u6 = 0; u6 < 2; ++u6) {
        const int at58 = u6 * 4;
        #pragma unroll
        for (int u7 = 0; u7 < 4; ++u7) {
          ptx_mma_m16n8k16_bf16(&sum0[(at58 + u7) * 4], &fragment_a1[at58], &fragment_b2[u7 * 2]);
        }
      }
    }
  }
  const int at59 = at7 + at28;
  const int at60 = lane3 / 4 % 8;
  const int at61 = at19 + at35;
  const int at62 = lane3 % 4 * 2;
  #pragma unroll
  for (int u8 = 0; u8 < 32; ++u8) {
    p2[(at59 + (at60 + u8 / 2 % 2 * 8 + u8 / 16 % 2 * 16)) * 128 + (at61 + (u8 % 2 + at62 + u8 / 4 % 4 * 8))] = sum0[u8];
  }
}
