void* malloc(unsigned long);
void free(void*);
void* memset(void*, int, unsigned long);
float fmaf(float, float, float);
typedef struct {
  int pc;  // where the warp goes on; -1: it is done
  float acc0[32][1];
  int r2;
} gemm_state;
// Runs a warp up to its next barrier (1), or to its end (0).
static int gemm_warp(gemm_state* restrict const S, const int warp, void** args, unsigned char* const shared, const int gidx1, const int gidx0) {
  const float* restrict const p0 = args[0];
  const float* restrict const p1 = args[1];
  float* restrict const p2 = args[2];
  float* restrict const a_tile0 = (float*)(shared + 0);
  float* restrict const b_tile1 = (float*)(shared + 1024);
  switch (S->pc) {
    case 0:;
    for (int l = 0; l < 32; ++l) {
      float* const acc0 = S->acc0[l];
      acc0[0] = 0.0f;
    }
    for (S->r2 = 0; S->r2 < 4; ++S->r2) {
      for (int l = 0; l < 32; ++l) {
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
      S->pc = 1; return 1; case 1:;  // __syncthreads()
      for (int l = 0; l < 32; ++l) {
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
      S->pc = 2; return 1; case 2:;  // __syncthreads()
    }
    for (int l = 0; l < 32; ++l) {
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
// Resumes warps, each up to the next barrier, until all are done.
static int gemm_block(gemm_state* warps, void** args, unsigned char* const shared, const int gidx1, const int gidx0) {
  memset(shared, 0xff, 2048);
  memset(warps, 0xff, 8 * sizeof *warps);
  for (int w = 0; w < 8; ++w) warps[w].pc = 0;
  int done = 0;
  while (done < 8) {
    int arrived = 0;
    for (int i = 0; i < 8; ++i) {
      const int w = i;
      if (warps[w].pc < 0) continue;
      if (gemm_warp(warps + w, w, args, shared, gidx1, gidx0)) ++arrived;
      else warps[w].pc = -1, ++done;
    }
    if (arrived && done) return 1;  // some wait for warps that are gone
  }
  return 0;
}
int gemm(void** args) {
  unsigned char* const shared = malloc(2048);
  if (!shared) return 2;
  gemm_state* const warps = malloc(8 * sizeof *warps);
  int code = warps ? 0 : 2;
  for (int gidx0 = 0; gidx0 < 4 && !code; ++gidx0) {
    for (int gidx1 = 0; gidx1 < 4 && !code; ++gidx1) {
      if (!code) code = gemm_block(warps, args, shared, gidx1, gidx0);
    }
  }
  free(warps);
  free(shared);
  return code;
}
