void* malloc(unsigned long);
void free(void*);
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
  int pc;  // where the warp goes on; -1: it is done
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
// Runs a warp up to its next barrier (1), or to its end (0).
static int softmax_warp(softmax_state* restrict const S, const int warp, void** args, unsigned char* const shared, const int gidx0) {
  const float* restrict const p0 = args[0];
  float* restrict const p1 = args[1];
  float* restrict const part3 = (float*)(shared + 0);
  float* restrict const part6 = (float*)(shared + 16);
  switch (S->pc) {
    case 0:;
    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x1 = S->x1[l];
      float* const max2 = S->max2[l];
      float max4[1];
      const int at0 = lidx1 * 4;
      const int at1 = gidx0 * 1000 + at0;
      for (int u1 = 0; u1 < 4; ++u1) {
        const int at2 = u1 * 256;
        if (at0 + at2 < 1000) memcpy(&x1[u1 * 4], &p0[at1 + at2], 16); else memset(&x1[u1 * 4], 0, 16);
      }
      max2[0] = bits_u32_f32(0xff800000u);
      max4[0] = bits_u32_f32(0xff800000u);
      for (int u1 = 0; u1 < 4; ++u1) {
        const _Bool ok0 = at0 + u1 * 256 < 1000;
        const int at4 = u1 * 4;
        for (int v1 = 0; v1 < 4; ++v1) {
          max4[0] = max_f32(max4[0], ok0 ? x1[at4 + v1] : bits_u32_f32(0xff800000u));
        }
      }
      const float val0 = max4[0];
      S->val0[l] = val0;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 16;
      const float val0 = S->val0[l];
      S->val1[to] = val0;
    }
    for (int l = 0; l < 32; ++l) {
      const float val0 = S->val0[l];
      const float val1 = S->val1[l];
      const float val2 = max_f32(val0, val1);
      S->val2[l] = val2;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 8;
      const float val2 = S->val2[l];
      S->val3[to] = val2;
    }
    for (int l = 0; l < 32; ++l) {
      const float val2 = S->val2[l];
      const float val3 = S->val3[l];
      const float val4 = max_f32(val2, val3);
      S->val4[l] = val4;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 4;
      const float val4 = S->val4[l];
      S->val5[to] = val4;
    }
    for (int l = 0; l < 32; ++l) {
      const float val4 = S->val4[l];
      const float val5 = S->val5[l];
      const float val6 = max_f32(val4, val5);
      S->val6[l] = val6;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 2;
      const float val6 = S->val6[l];
      S->val7[to] = val6;
    }
    for (int l = 0; l < 32; ++l) {
      const float val6 = S->val6[l];
      const float val7 = S->val7[l];
      const float val8 = max_f32(val6, val7);
      S->val8[l] = val8;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 1;
      const float val8 = S->val8[l];
      S->val9[to] = val8;
    }
    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      const int at3 = lidx1 / 32;
      const float val8 = S->val8[l];
      const float val9 = S->val9[l];
      const _Bool ok1 = lidx1 % 32 == 0;
      if (ok1) part3[at3] = max_f32(val8, val9);
    }
    S->pc = 1; return 1; case 1:;  // __syncthreads()
    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x0 = S->x0[l];
      float* const x1 = S->x1[l];
      float* const max2 = S->max2[l];
      float* const acc5 = S->acc5[l];
      float acc7[1];
      const int at0 = lidx1 * 4;
      for (int w1 = 0; w1 < 2; ++w1) {
        const float val10 = part3[w1];
        max2[0] = max_f32(max2[0], val10);
      }
      const float val11 = max2[0];
      for (int u1 = 0; u1 < 4; ++u1) {
        const int at5 = u1 * 4;
        for (int v1 = 0; v1 < 4; ++v1) {
          const int at6 = at5 + v1;
          x0[at6] = expf(x1[at6] - val11);
        }
      }
      acc5[0] = 0.0f;
      acc7[0] = 0.0f;
      for (int u1 = 0; u1 < 4; ++u1) {
        const _Bool ok2 = at0 + u1 * 256 < 1000;
        const int at7 = u1 * 4;
        for (int v1 = 0; v1 < 4; ++v1) {
          acc7[0] = acc7[0] + (ok2 ? x0[at7 + v1] : 0.0f);
        }
      }
      const float val12 = acc7[0];
      S->val12[l] = val12;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 16;
      const float val12 = S->val12[l];
      S->val13[to] = val12;
    }
    for (int l = 0; l < 32; ++l) {
      const float val12 = S->val12[l];
      const float val13 = S->val13[l];
      const float val14 = val12 + val13;
      S->val14[l] = val14;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 8;
      const float val14 = S->val14[l];
      S->val15[to] = val14;
    }
    for (int l = 0; l < 32; ++l) {
      const float val14 = S->val14[l];
      const float val15 = S->val15[l];
      const float val16 = val14 + val15;
      S->val16[l] = val16;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 4;
      const float val16 = S->val16[l];
      S->val17[to] = val16;
    }
    for (int l = 0; l < 32; ++l) {
      const float val16 = S->val16[l];
      const float val17 = S->val17[l];
      const float val18 = val16 + val17;
      S->val18[l] = val18;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 2;
      const float val18 = S->val18[l];
      S->val19[to] = val18;
    }
    for (int l = 0; l < 32; ++l) {
      const float val18 = S->val18[l];
      const float val19 = S->val19[l];
      const float val20 = val18 + val19;
      S->val20[l] = val20;
    }
    for (int to = 0; to < 32; ++to) {
      const int l = to ^ 1;
      const float val20 = S->val20[l];
      S->val21[to] = val20;
    }
    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      const int at3 = lidx1 / 32;
      const _Bool ok1 = lidx1 % 32 == 0;
      const float val20 = S->val20[l];
      const float val21 = S->val21[l];
      if (ok1) part6[at3] = val20 + val21;
    }
    S->pc = 2; return 1; case 2:;  // __syncthreads()
    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx1 = thread;
      float* const x0 = S->x0[l];
      float* const acc5 = S->acc5[l];
      const int at0 = lidx1 * 4;
      const int at1 = gidx0 * 1000 + at0;
      for (int w1 = 0; w1 < 2; ++w1) {
        const float val22 = part6[w1];
        acc5[0] = acc5[0] + val22;
      }
      const float val23 = acc5[0];
      for (int u1 = 0; u1 < 4; ++u1) {
        float out8[4];
        const int at8 = u1 * 256;
        const int at9 = u1 * 4;
        for (int v1 = 0; v1 < 4; ++v1) {
          out8[v1] = x0[at9 + v1] / val23;
        }
        if (at0 + at8 < 1000) memcpy(&p1[at1 + at8], &out8[0], 16);
      }
    }
  }
  return 0;
}
// Resumes warps, each up to the next barrier, until all are done.
static int softmax_block(softmax_state* warps, void** args, unsigned char* const shared, const int gidx0) {
  memset(shared, 0xff, 32);
  memset(warps, 0xff, 2 * sizeof *warps);
  for (int w = 0; w < 2; ++w) warps[w].pc = 0;
  int done = 0;
  while (done < 2) {
    int arrived = 0;
    for (int i = 0; i < 2; ++i) {
      const int w = i;
      if (warps[w].pc < 0) continue;
      if (softmax_warp(warps + w, w, args, shared, gidx0)) ++arrived;
      else warps[w].pc = -1, ++done;
    }
    if (arrived && done) return 1;  // some wait for warps that are gone
  }
  return 0;
}
int softmax(void** args) {
  unsigned char* const shared = malloc(32);
  if (!shared) return 2;
  softmax_state* const warps = malloc(2 * sizeof *warps);
  int code = warps ? 0 : 2;
  for (int gidx0 = 0; gidx0 < 33 && !code; ++gidx0) {
    if (!code) code = softmax_block(warps, args, shared, gidx0);
  }
  free(warps);
  free(shared);
  return code;
}
