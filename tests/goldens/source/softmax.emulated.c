#include "emulated.h"
void* memcpy(void*, const void*, unsigned long);
void* memset(void*, int, unsigned long);
float expf(float);
static inline float bits_u32_f32(unsigned a) { float r; memcpy(&r, &a, 4); return r; }
static inline unsigned bits_f32_u32(float a) { unsigned r; memcpy(&r, &a, 4); return r; }
static inline float max_f32(float a, float b) {  // NaN wins, -0 < +0
  if (a != a || b != b) return bits_u32_f32(0x7fffffffu);
  if (a == b) return bits_u32_f32(bits_f32_u32(a) & bits_f32_u32(b));
  return a > b ? a : b;
}
typedef struct {
  EmuWarp head;
  float x0[32][16];
  float x1[32][16];
  float max2[32][1];
  float acc5[32][1];
  float val0[32];
  float val1[32];
  float val2[32];
  float val3[32];
  float val4[32];
  float val5[32];
  float val6[32];
  float val7[32];
  float val8[32];
  float val9[32];
  float val12[32];
  float val13[32];
  float val14[32];
  float val15[32];
  float val16[32];
  float val17[32];
  float val18[32];
  float val19[32];
  float val20[32];
  float val21[32];
} softmax_state;
// Runs a warp up to where it has to wait (1), or to its end (0).
static int softmax_warp(void* state) {
  softmax_state* restrict const S = state;
  EmuWarp* const W = &S->head;
  const int warp = W->warp;
  void** const args = W->block->args;
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  unsigned char* const shared = W->block->shared;
  float* restrict const part3 = (float*)(shared + 0);
  float* restrict const part6 = (float*)(shared + 16);
  const int gidx0 = W->block->place[0];
  switch (W->pc) {
    case 0:;
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x1 = S->x1[l];
      float* const max2 = S->max2[l];
      float max4[1];
      const int at0 = lidx1 * 4;
      const int at1 = gidx0 * 1000 + at0;
      #pragma GCC unroll 4
      for (int u1 = 0; u1 < 4; ++u1) {
        const int at2 = u1 * 256;
        if (at0 + at2 < 1000) memcpy(&x1[u1 * 4], &p0[at1 + at2], 16); else memset(&x1[u1 * 4], 0, 16);
      }
      max2[0] = bits_u32_f32(0xff800000u);
      max4[0] = bits_u32_f32(0xff800000u);
      #pragma GCC unroll 4
      for (int u1 = 0; u1 < 4; ++u1) {
        const _Bool ok0 = at0 + u1 * 256 < 1000;
        const int at4 = u1 * 4;
        #pragma GCC unroll 4
        for (int v1 = 0; v1 < 4; ++v1) {
          max4[0] = max_f32(max4[0], ok0 ? x1[at4 + v1] : bits_u32_f32(0xff800000u));
        }
      }
      const float val0 = max4[0];
      S->val0[l] = val0;
    }
    for (int l = 0; l < 32; ++l) S->val1[l] = S->val0[l ^ 16];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val0 = S->val0[l];
      const float val1 = S->val1[l];
      const float val2 = max_f32(val0, val1);
      S->val2[l] = val2;
    }
    for (int l = 0; l < 32; ++l) S->val3[l] = S->val2[l ^ 8];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val2 = S->val2[l];
      const float val3 = S->val3[l];
      const float val4 = max_f32(val2, val3);
      S->val4[l] = val4;
    }
    for (int l = 0; l < 32; ++l) S->val5[l] = S->val4[l ^ 4];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val4 = S->val4[l];
      const float val5 = S->val5[l];
      const float val6 = max_f32(val4, val5);
      S->val6[l] = val6;
    }
    for (int l = 0; l < 32; ++l) S->val7[l] = S->val6[l ^ 2];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val6 = S->val6[l];
      const float val7 = S->val7[l];
      const float val8 = max_f32(val6, val7);
      S->val8[l] = val8;
    }
    for (int l = 0; l < 32; ++l) S->val9[l] = S->val8[l ^ 1];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      const int at3 = lidx1 / 32;
      const float val8 = S->val8[l];
      const float val9 = S->val9[l];
      const _Bool ok1 = lidx1 % 32 == 0;
      if (ok1) part3[at3] = max_f32(val8, val9);
    }
    emu_block_barrier(W, W->full, 0);
    W->pc = 1; case 1: if (!emu_passed(W)) return 1;
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x0 = S->x0[l];
      float* const x1 = S->x1[l];
      float* const max2 = S->max2[l];
      float* const acc5 = S->acc5[l];
      float acc7[1];
      const int at0 = lidx1 * 4;
      #pragma GCC unroll 2
      for (int w1 = 0; w1 < 2; ++w1) {
        const float val10 = part3[w1];
        max2[0] = max_f32(max2[0], val10);
      }
      const float val11 = max2[0];
      #pragma GCC unroll 4
      for (int u1 = 0; u1 < 4; ++u1) {
        const int at5 = u1 * 4;
        #pragma GCC unroll 4
        for (int v1 = 0; v1 < 4; ++v1) {
          const int at6 = at5 + v1;
          x0[at6] = expf(x1[at6] - val11);
        }
      }
      acc5[0] = 0.0f;
      acc7[0] = 0.0f;
      #pragma GCC unroll 4
      for (int u1 = 0; u1 < 4; ++u1) {
        const _Bool ok2 = at0 + u1 * 256 < 1000;
        const int at7 = u1 * 4;
        #pragma GCC unroll 4
        for (int v1 = 0; v1 < 4; ++v1) {
          acc7[0] = acc7[0] + (ok2 ? x0[at7 + v1] : 0.0f);
        }
      }
      const float val12 = acc7[0];
      S->val12[l] = val12;
    }
    for (int l = 0; l < 32; ++l) S->val13[l] = S->val12[l ^ 16];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val12 = S->val12[l];
      const float val13 = S->val13[l];
      const float val14 = val12 + val13;
      S->val14[l] = val14;
    }
    for (int l = 0; l < 32; ++l) S->val15[l] = S->val14[l ^ 8];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val14 = S->val14[l];
      const float val15 = S->val15[l];
      const float val16 = val14 + val15;
      S->val16[l] = val16;
    }
    for (int l = 0; l < 32; ++l) S->val17[l] = S->val16[l ^ 4];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val16 = S->val16[l];
      const float val17 = S->val17[l];
      const float val18 = val16 + val17;
      S->val18[l] = val18;
    }
    for (int l = 0; l < 32; ++l) S->val19[l] = S->val18[l ^ 2];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val18 = S->val18[l];
      const float val19 = S->val19[l];
      const float val20 = val18 + val19;
      S->val20[l] = val20;
    }
    for (int l = 0; l < 32; ++l) S->val21[l] = S->val20[l ^ 1];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      const int at3 = lidx1 / 32;
      const _Bool ok1 = lidx1 % 32 == 0;
      const float val20 = S->val20[l];
      const float val21 = S->val21[l];
      if (ok1) part6[at3] = val20 + val21;
    }
    emu_block_barrier(W, W->full, 1);
    W->pc = 2; case 2: if (!emu_passed(W)) return 1;
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x0 = S->x0[l];
      float* const acc5 = S->acc5[l];
      const int at0 = lidx1 * 4;
      const int at1 = gidx0 * 1000 + at0;
      #pragma GCC unroll 2
      for (int w1 = 0; w1 < 2; ++w1) {
        const float val22 = part6[w1];
        acc5[0] = acc5[0] + val22;
      }
      const float val23 = acc5[0];
      #pragma GCC unroll 4
      for (int u1 = 0; u1 < 4; ++u1) {
        float out8[4];
        const int at8 = u1 * 256;
        const int at9 = u1 * 4;
        #pragma GCC unroll 4
        for (int v1 = 0; v1 < 4; ++v1) {
          out8[v1] = x0[at9 + v1] / val23;
        }
        if (at0 + at8 < 1000) memcpy(&p1[at1 + at8], &out8[0], 16);
      }
    }
  }
  return 0;
}
static const EmuMemoryInfo softmax_memories[] = {
  {EMU_GLOBAL, 0, 132000, 4, 4, 0, 0, 0, 0, 1, 0},  // p0
  {EMU_GLOBAL, 1, 132000, 4, 4, 0, 0, 0, 1, 0, 0},  // p1
  {EMU_SHARED, 0, 8, 4, 2, 2, 2, 2, 1, 1, 0},  // part3
  {EMU_SHARED, 16, 8, 4, 2, 2, 2, 2, 1, 1, 0},  // part6
  {EMU_REGISTERS, 0, 64, 4, 2, 0, 0, 0, 1, 1, 0},  // x0
  {EMU_REGISTERS, 0, 64, 4, 2, 0, 0, 0, 1, 1, 0},  // x1
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // max2
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // max4
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // acc5
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // acc7
  {EMU_REGISTERS, 0, 16, 4, 2, 0, 0, 0, 1, 1, 0},  // out8
};
int softmax(void** args) {
  static const EmuKernel kernel = {
    .run = softmax_warp,
    .state_bytes = sizeof(softmax_state),
    .threads = 64,
    .grid_axes = 1,
    .grid = {33},
    .shared_bytes = 32,
    .parameters = 2,
    .memory_count = 11,
    .memories = softmax_memories,
  };
  return emu_launch(&kernel, args);
}
