#include "emulated.h"
float fmaf(float, float, float);
typedef struct {
  EmuWarp head;
  float acc0[32][1];
  int r2;
} gemm_state;
// Runs a warp up to where it has to wait (1), or to its end (0).
static int gemm_warp(void* state) {
  gemm_state* restrict const S = state;
  EmuWarp* const W = &S->head;
  const int warp = W->warp;
  void** const args = W->block->args;
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  unsigned char* const shared = W->block->shared;
  float* restrict const a_tile0 = (float*)(shared + 0);
  float* restrict const b_tile1 = (float*)(shared + 1024);
  const int gidx1 = W->block->place[0];
  const int gidx0 = W->block->place[1];
  switch (W->pc) {
    case 0:;
    for (int l = W->first; l != W->stop; l += W->step) {
      float* const acc0 = S->acc0[l];
      acc0[0] = 0.0f;
    }
    for (S->r2 = 0; S->r2 < 4; ++S->r2) {
      for (int l = W->first; l != W->stop; l += W->step) {
        const int thread = 32 * warp + l;
        const int lidx1 = thread % 16;
        const int lidx0 = thread / 16;
        const int r2 = S->r2;
        const int at0 = (gidx0 * 16 + lidx0) * 64;
        const int at1 = gidx1 * 16 + lidx1;
        const int at2 = lidx0 * 16;
        const int at3 = at2 + lidx1;
        const int at4 = r2 * 16;
        a_tile0[at3] = p0[at0 + (at4 + lidx1)];
        b_tile1[at3] = p1[(at4 + lidx0) * 64 + at1];
      }
      emu_block_barrier(W, W->full, 0);
      W->pc = 1; case 1: if (!emu_passed(W)) return 1;
      for (int l = W->first; l != W->stop; l += W->step) {
        const int thread = 32 * warp + l;
        const int lidx1 = thread % 16;
        const int lidx0 = thread / 16;
        float* const acc0 = S->acc0[l];
        const int at2 = lidx0 * 16;
        for (int r3 = 0; r3 < 16; ++r3) {
          const float val0 = a_tile0[at2 + r3];
          const float val1 = b_tile1[r3 * 16 + lidx1];
          acc0[0] = fmaf(val0, val1, acc0[0]);
        }
      }
      emu_block_barrier(W, W->full, 1);
      W->pc = 2; case 2: if (!emu_passed(W)) return 1;
    }
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread % 16;
      const int lidx0 = thread / 16;
      float* const acc0 = S->acc0[l];
      const int at0 = (gidx0 * 16 + lidx0) * 64;
      const int at1 = gidx1 * 16 + lidx1;
      p2[at0 + at1] = acc0[0];
    }
  }
  return 0;
}
static const EmuMemoryInfo gemm_memories[] = {
  {EMU_GLOBAL, 0, 16384, 4, 2, 0, 0, 0, 0, 1, 0},  // p0
  {EMU_GLOBAL, 1, 16384, 4, 2, 0, 0, 0, 0, 1, 0},  // p1
  {EMU_GLOBAL, 2, 16384, 4, 2, 0, 0, 0, 1, 0, 0},  // p2
  {EMU_SHARED, 0, 1024, 4, 2, 8, 8, 8, 1, 1, 0},  // a_tile0
  {EMU_SHARED, 1024, 1024, 4, 2, 8, 8, 8, 1, 1, 0},  // b_tile1
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // acc0
};
int gemm(void** args) {
  static const EmuKernel kernel = {
    .run = gemm_warp,
    .state_bytes = sizeof(gemm_state),
    .threads = 256,
    .grid_axes = 2,
    .grid = {4, 4},
    .shared_bytes = 2048,
    .parameters = 3,
    .memory_count = 6,
    .memories = gemm_memories,
  };
  return emu_launch(&kernel, args);
}
