#include "emulated.h"
void* memcpy(void*, const void*, unsigned long);
static inline float bits_u32_f32(unsigned a) { float r; memcpy(&r, &a, 4); return r; }
typedef struct {
  EmuWarp head;
  float argmax0[32][1];
  int argmax1[32][1];
  int argmax5[32][1];
  float val8[32];
  float val9[32];
  _Bool ok8[32];
  _Bool ok9[32];
  int val10[32];
  int val11[32];
  _Bool ok10[32];
  float val12[32];
  float val13[32];
  _Bool ok11[32];
  _Bool ok12[32];
  int val14[32];
  int val15[32];
  _Bool ok13[32];
  float val16[32];
  float val17[32];
  _Bool ok14[32];
  _Bool ok15[32];
  int val18[32];
  int val19[32];
  _Bool ok16[32];
  float val20[32];
  float val21[32];
  _Bool ok17[32];
  _Bool ok18[32];
  int val22[32];
  int val23[32];
  _Bool ok19[32];
  float val24[32];
  float val25[32];
  _Bool ok20[32];
  _Bool ok21[32];
  int val26[32];
  int val27[32];
} argmax_state;
// Runs a warp up to where it has to wait (1), or to its end (0).
static int argmax_warp(void* state) {
  argmax_state* restrict const S = state;
  EmuWarp* const W = &S->head;
  const int warp = W->warp;
  void** const args = W->block->args;
  const float* restrict const p0 = args[0];
  int* restrict const p1 = args[1];
  unsigned char* const shared = W->block->shared;
  float* restrict const part2 = (float*)(shared + 0);
  int* restrict const part3 = (int*)(shared + 16);
  const int gidx0 = W->block->place[0];
  switch (W->pc) {
    case 0:;
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread % 64;
      const int lidx0 = thread / 64;
      float* const argmax0 = S->argmax0[l];
      int* const argmax1 = S->argmax1[l];
      int* const argmax5 = S->argmax5[l];
      float argmax4[1];
      float argmax6[2];
      int argmax7[2];
      const int at0 = gidx0 * 2 + lidx0;
      argmax0[0] = bits_u32_f32(0xff800000u);
      argmax1[0] = 2147483647;
      argmax4[0] = bits_u32_f32(0xff800000u);
      argmax5[0] = 2147483647;
      #pragma GCC unroll 2
      for (int u1 = 0; u1 < 2; ++u1) {
        argmax6[u1] = bits_u32_f32(0xff800000u);
        argmax7[u1] = 2147483647;
      }
      const int at2 = gidx0 * 1554 + lidx0 * 777 + lidx1;
      const _Bool ok0 = at0 < 5;
      for (int k1 = 0; k1 < 7; ++k1) {
        float x8[2];
        const int at3 = k1 * 128;
        const int at4 = lidx1 + at3;
        const int at5 = at2 + at3;
        #pragma GCC unroll 2
        for (int u1 = 0; u1 < 2; ++u1) {
          const int at6 = u1 * 64;
          x8[u1] = ok0 && at4 + at6 < 777 ? p0[at5 + at6] : 0.0f;
        }
        #pragma GCC unroll 2
        for (int u1 = 0; u1 < 2; ++u1) {
          const float val0 = argmax6[u1];
          const int at7 = at4 + u1 * 64;
          const _Bool ok1 = at7 < 777;
          const float val1 = ok1 ? x8[u1] : bits_u32_f32(0xff800000u);
          const _Bool ok2 = val1 != val1;
          const _Bool ok3 = val0 != val0;
          const int val2 = ok1 ? (int)at7 : 2147483647;
          const int val3 = argmax7[u1];
          const _Bool ok4 = val0 < val1 || ok2 && !ok3 || (val0 == val1 || ok3 && ok2) && val2 < val3;
          argmax6[u1] = ok4 ? val1 : val0;
          argmax7[u1] = ok4 ? val2 : val3;
        }
      }
      #pragma GCC unroll 2
      for (int u1 = 0; u1 < 2; ++u1) {
        const float val4 = argmax4[0];
        const float val5 = argmax6[u1];
        const _Bool ok5 = val5 != val5;
        const _Bool ok6 = val4 != val4;
        const int val6 = argmax7[u1];
        const int val7 = argmax5[0];
        const _Bool ok7 = val4 < val5 || ok5 && !ok6 || (val4 == val5 || ok6 && ok5) && val6 < val7;
        argmax4[0] = ok7 ? val5 : val4;
        argmax5[0] = ok7 ? val6 : val7;
      }
      const float val8 = argmax4[0];
      S->val8[l] = val8;
    }
    for (int l = 0; l < 32; ++l) S->val9[l] = S->val8[l ^ 16];
    for (int l = W->first; l != W->stop; l += W->step) {
      int* const argmax5 = S->argmax5[l];
      const float val8 = S->val8[l];
      const float val9 = S->val9[l];
      const _Bool ok8 = val9 != val9;
      S->ok8[l] = ok8;
      const _Bool ok9 = val8 != val8;
      S->ok9[l] = ok9;
      const int val10 = argmax5[0];
      S->val10[l] = val10;
    }
    for (int l = 0; l < 32; ++l) S->val11[l] = S->val10[l ^ 16];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val8 = S->val8[l];
      const float val9 = S->val9[l];
      const _Bool ok8 = S->ok8[l];
      const _Bool ok9 = S->ok9[l];
      const int val10 = S->val10[l];
      const int val11 = S->val11[l];
      const _Bool ok10 = val8 < val9 || ok8 && !ok9 || (val8 == val9 || ok9 && ok8) && val11 < val10;
      S->ok10[l] = ok10;
      const float val12 = ok10 ? val9 : val8;
      S->val12[l] = val12;
    }
    for (int l = 0; l < 32; ++l) S->val13[l] = S->val12[l ^ 8];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int val10 = S->val10[l];
      const int val11 = S->val11[l];
      const _Bool ok10 = S->ok10[l];
      const float val12 = S->val12[l];
      const float val13 = S->val13[l];
      const _Bool ok11 = val13 != val13;
      S->ok11[l] = ok11;
      const _Bool ok12 = val12 != val12;
      S->ok12[l] = ok12;
      const int val14 = ok10 ? val11 : val10;
      S->val14[l] = val14;
    }
    for (int l = 0; l < 32; ++l) S->val15[l] = S->val14[l ^ 8];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val12 = S->val12[l];
      const float val13 = S->val13[l];
      const _Bool ok11 = S->ok11[l];
      const _Bool ok12 = S->ok12[l];
      const int val14 = S->val14[l];
      const int val15 = S->val15[l];
      const _Bool ok13 = val12 < val13 || ok11 && !ok12 || (val12 == val13 || ok12 && ok11) && val15 < val14;
      S->ok13[l] = ok13;
      const float val16 = ok13 ? val13 : val12;
      S->val16[l] = val16;
    }
    for (int l = 0; l < 32; ++l) S->val17[l] = S->val16[l ^ 4];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int val14 = S->val14[l];
      const int val15 = S->val15[l];
      const _Bool ok13 = S->ok13[l];
      const float val16 = S->val16[l];
      const float val17 = S->val17[l];
      const _Bool ok14 = val17 != val17;
      S->ok14[l] = ok14;
      const _Bool ok15 = val16 != val16;
      S->ok15[l] = ok15;
      const int val18 = ok13 ? val15 : val14;
      S->val18[l] = val18;
    }
    for (int l = 0; l < 32; ++l) S->val19[l] = S->val18[l ^ 4];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val16 = S->val16[l];
      const float val17 = S->val17[l];
      const _Bool ok14 = S->ok14[l];
      const _Bool ok15 = S->ok15[l];
      const int val18 = S->val18[l];
      const int val19 = S->val19[l];
      const _Bool ok16 = val16 < val17 || ok14 && !ok15 || (val16 == val17 || ok15 && ok14) && val19 < val18;
      S->ok16[l] = ok16;
      const float val20 = ok16 ? val17 : val16;
      S->val20[l] = val20;
    }
    for (int l = 0; l < 32; ++l) S->val21[l] = S->val20[l ^ 2];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int val18 = S->val18[l];
      const int val19 = S->val19[l];
      const _Bool ok16 = S->ok16[l];
      const float val20 = S->val20[l];
      const float val21 = S->val21[l];
      const _Bool ok17 = val21 != val21;
      S->ok17[l] = ok17;
      const _Bool ok18 = val20 != val20;
      S->ok18[l] = ok18;
      const int val22 = ok16 ? val19 : val18;
      S->val22[l] = val22;
    }
    for (int l = 0; l < 32; ++l) S->val23[l] = S->val22[l ^ 2];
    for (int l = W->first; l != W->stop; l += W->step) {
      const float val20 = S->val20[l];
      const float val21 = S->val21[l];
      const _Bool ok17 = S->ok17[l];
      const _Bool ok18 = S->ok18[l];
      const int val22 = S->val22[l];
      const int val23 = S->val23[l];
      const _Bool ok19 = val20 < val21 || ok17 && !ok18 || (val20 == val21 || ok18 && ok17) && val23 < val22;
      S->ok19[l] = ok19;
      const float val24 = ok19 ? val21 : val20;
      S->val24[l] = val24;
    }
    for (int l = 0; l < 32; ++l) S->val25[l] = S->val24[l ^ 1];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int val22 = S->val22[l];
      const int val23 = S->val23[l];
      const _Bool ok19 = S->ok19[l];
      const float val24 = S->val24[l];
      const float val25 = S->val25[l];
      const _Bool ok20 = val25 != val25;
      S->ok20[l] = ok20;
      const _Bool ok21 = val24 != val24;
      S->ok21[l] = ok21;
      const int val26 = ok19 ? val23 : val22;
      S->val26[l] = val26;
    }
    for (int l = 0; l < 32; ++l) S->val27[l] = S->val26[l ^ 1];
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread % 64;
      const int lidx0 = thread / 64;
      const int at1 = lidx0 + lidx1 / 32 * 2;
      const float val24 = S->val24[l];
      const float val25 = S->val25[l];
      const _Bool ok20 = S->ok20[l];
      const _Bool ok21 = S->ok21[l];
      const int val26 = S->val26[l];
      const int val27 = S->val27[l];
      const _Bool ok22 = val24 < val25 || ok20 && !ok21 || (val24 == val25 || ok21 && ok20) && val27 < val26;
      const _Bool ok23 = lidx1 % 32 == 0;
      if (ok23) part2[at1] = ok22 ? val25 : val24;
      if (ok23) part3[at1] = ok22 ? val27 : val26;
    }
    emu_block_barrier(W, W->full, 0);
    W->pc = 1; case 1: if (!emu_passed(W)) return 1;
    for (int l = W->first; l != W->stop; l += W->step) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread % 64;
      const int lidx0 = thread / 64;
      float* const argmax0 = S->argmax0[l];
      int* const argmax1 = S->argmax1[l];
      const int at0 = gidx0 * 2 + lidx0;
      const _Bool ok0 = at0 < 5;
      #pragma GCC unroll 2
      for (int w1 = 0; w1 < 2; ++w1) {
        const float val28 = argmax0[0];
        const int at8 = lidx0 + w1 * 2;
        const float val29 = part2[at8];
        const _Bool ok24 = val29 != val29;
        const _Bool ok25 = val28 != val28;
        const int val30 = part3[at8];
        const int val31 = argmax1[0];
        const _Bool ok26 = val28 < val29 || ok24 && !ok25 || (val28 == val29 || ok25 && ok24) && val30 < val31;
        argmax0[0] = ok26 ? val29 : val28;
        argmax1[0] = ok26 ? val30 : val31;
      }
      if (ok0 && lidx1 == 0) p1[at0] = argmax1[0];
    }
  }
  return 0;
}
static const EmuMemoryInfo argmax_memories[] = {
  {EMU_GLOBAL, 0, 15540, 4, 2, 0, 0, 0, 0, 1, 0},  // p0
  {EMU_GLOBAL, 1, 20, 4, 2, 0, 0, 0, 1, 0, 0},  // p1
  {EMU_SHARED, 0, 16, 4, 2, 4, 4, 4, 1, 1, 0},  // part2
  {EMU_SHARED, 16, 16, 4, 2, 4, 4, 4, 1, 1, 0},  // part3
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax0
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax1
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax4
  {EMU_REGISTERS, 0, 4, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax5
  {EMU_REGISTERS, 0, 8, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax6
  {EMU_REGISTERS, 0, 8, 4, 2, 0, 0, 0, 1, 1, 0},  // argmax7
  {EMU_REGISTERS, 0, 8, 4, 2, 0, 0, 0, 1, 1, 0},  // x8
};
int argmax(void** args) {
  static const EmuKernel kernel = {
    .run = argmax_warp,
    .state_bytes = sizeof(argmax_state),
    .threads = 128,
    .grid_axes = 1,
    .grid = {3},
    .shared_bytes = 32,
    .parameters = 2,
    .memory_count = 11,
    .memories = argmax_memories,
  };
  return emu_launch(&kernel, args);
}
