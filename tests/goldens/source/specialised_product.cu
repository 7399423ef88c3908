__device__ __forceinline__ unsigned pack_bf16(float a, float b) { unsigned r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
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
template<int N> __device__ __forceinline__ void ptx_pin(float (&r)[N]) {
  #pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i]));
}
template<int N> __device__ __forceinline__ void ptx_pin(int (&r)[N]) {
  #pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i]));
}
template<int N> __device__ __forceinline__ void ptx_pin(unsigned (&r)[N]) {
  #pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i]));
}
__device__ __forceinline__ unsigned long long ptx_descriptor(const void* p, unsigned long long layout) {
  return (ptx_shared(p) >> 4 & 0x3fff) | layout;
}
__device__ __forceinline__ void ptx_wgmma_m64n128k16_bf16(float* d, unsigned long long a, unsigned long long b, bool keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
    : "l"(a), "l"(b), "r"((int)keep));
}
__device__ __forceinline__ void ptx_mbarrier_arrive(void* mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(ptx_shared(mbarrier)) : "memory");
}
__device__ __forceinline__ void ptx_stmatrix_x4(void* row, const unsigned* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" :: "r"(ptx_shared(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
__device__ __forceinline__ void ptx_bulk_store_2d(const TensorMap* map, const void* from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%3,%2}], [%1];" :: "l"(map), "r"(ptx_shared(from)), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void ptx_mbarrier_expect(void* mbarrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(ptx_shared(mbarrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void ptx_bulk_load_2d(void* to, const TensorMap* map, const void* mbarrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%4,%3}], [%2];" :: "r"(ptx_shared(to)), "l"(map), "r"(ptx_shared(mbarrier)), "r"(c0), "r"(c1) : "memory");
}
extern "C" __global__ void __launch_bounds__(384, 1) specialised_product(const unsigned short* __restrict__ p0, const unsigned short* __restrict__ p1, unsigned short* __restrict__ p2, const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1, const __grid_constant__ TensorMap map2) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int gidx9 = blockIdx.x;
  const int gidx0 = blockIdx.y;
  const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  const int lane3 = (int)threadIdx.x % 32;
  const int warp2 = warp % 4;
  const int group1 = warp / 4;
  unsigned long long* const full0 = (unsigned long long*)(shared + 163840);
  unsigned long long* const empty1 = (unsigned long long*)(shared + 163872);
  unsigned short* const ring_a0 = (unsigned short*)(shared + 0);
  unsigned short* const ring_b1 = (unsigned short*)(shared + 65536);
  unsigned short* const out2 = (unsigned short*)(shared + 131072);
  __align__(16) float sum0[64];
  __align__(16) unsigned pairs1[32];
  const int at0 = warp2 * 32 + lane3;
  const bool ok0 = at0 == 0;
  const int at1 = group1 + 1;
  if (group1 == 0 && ok0) {
    ptx_mbarrier_init(&full0[0], 1);
    ptx_mbarrier_init(&empty1[0], 2);
    ptx_mbarrier_init(&full0[1], 1);
    ptx_mbarrier_init(&empty1[1], 2);
    ptx_mbarrier_init(&full0[2], 1);
    ptx_mbarrier_init(&empty1[2], 2);
    ptx_mbarrier_init(&full0[3], 1);
    ptx_mbarrier_init(&empty1[3], 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int at2 = group1 * 4096;
  const int at3 = group1 * 8192;
  const int at4 = at0 / 16 % 2 * 8;
  const int at5 = (at0 % 8 + at0 / 8 % 2 * 8 + at0 / 32 % 4 * 16) * 64;
  const int at6 = at3 + 0;
  const int at7 = gidx0 * 128;
  const int at8 = at7 + group1 * 64;
  const int at9 = gidx9 * 128;
  const int at10 = at9 + 0;
  const int at11 = at3 + 4096;
  const int at12 = at9 + 64;
  if (warp < 8) {
    // role consumers
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
    #pragma unroll 1
    for (int i4 = 0; i4 < 6; ++i4) {
      const int at13 = i4 % 4;
      ptx_mbarrier_wait(&full0[at13], i4 / 4 % 2);
      ptx_pin(sum0); asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      const int at14 = at13 * 8192;
      const unsigned long long val0 = ptx_descriptor(&ring_a0[at14 + at2], 0x4000004000010000ull);
      const unsigned long long val1 = ptx_descriptor(&ring_b1[at14], 0x4000004000010000ull);
      #pragma unroll
      for (int u5 = 0; u5 < 4; ++u5) {
        const unsigned long long val2 = (unsigned long long)((0 + u5 * 16) * 2 / 16);
        ptx_wgmma_m64n128k16_bf16(&sum0[0], val0 + val2, val1 + val2, i4 + u5 != 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); ptx_pin(sum0);
      if (ok0) {
        ptx_mbarrier_arrive(&empty1[at13]);
      }
    }
    #pragma unroll
    for (int u6 = 0; u6 < 32; ++u6) {
      const int at15 = 2 * u6;
      pairs1[u6] = pack_bf16(sum0[at15 + 0], sum0[at15 + 1]);
    }
    #pragma unroll
    for (int u7 = 0; u7 < 8; ++u7) {
      const int at16 = at4 + u7 % 8 * 16;
      const int at17 = at16 / 64 * 4096 + at5 + at16 % 64;
      ptx_stmatrix_x4(&out2[at3 + (at17 ^ at17 / 64 % 8 * 8)], &pairs1[u7 * 4]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" :: "r"(at1) : "memory");
    if (ok0) {
      ptx_bulk_store_2d(&map0, &out2[at6], at8, at10);
      ptx_bulk_store_2d(&map0, &out2[at11], at8, at12);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
  else {
    // role producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
    if (ok0) {
      #pragma unroll 1
      for (int i8 = 0; i8 < 6; ++i8) {
        const int at18 = i8 % 4;
        ptx_mbarrier_wait(&empty1[at18], 1 - i8 / 4 % 2);
        ptx_mbarrier_expect(&full0[at18], 32768);
        const int at19 = at18 * 8192;
        const int at20 = i8 * 64;
        ptx_bulk_load_2d(&ring_a0[at19], &map1, &full0[at18], at7, at20);
        ptx_bulk_load_2d(&ring_b1[at19], &map2, &full0[at18], at9, at20);
      }
    }
  }
}
