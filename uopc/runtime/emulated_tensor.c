/* Tensor cores: who may read and write what, and when.  The numbers come from tensor_cores.c. */
#include "emulated_runtime.h"

#include "tensor_cores.h"

enum { ROW = TC_PIECE_BYTES, ROWS_OF_A_WARP = 16 };
/* bytes of an element in shared memory, by TcType */
static const int BYTES[] = {2, 2, 4, 1, 1, 1, 1, 8, 4, 4};

static void by_the_whole_warp(EmuWarp* W, unsigned mask, int place) {
  if (!run_of(W)->checked || mask == W->full) return;
  report_details(run_of(W), fault_at(run_of(W), MEMBERS, place, -1, 0, W->warp, emu_first(mask)), 2,
                 (int[]){(int)W->full, (int)mask});
}

/* ---- ldmatrix, stmatrix: a lane reads or writes the row whose place it names */
static int row_places(EmuWarp* W, int place, EmuMemory* m, const long long* at, int tiles,
                      unsigned* rows, const void* values) {
  EmuRun* run = run_of(W);
  const unsigned own = run->checked ? W->known[W->warp] : 0;
  for (int l = 0; l < 8 * tiles; ++l) {
    const Observer by = {.warp = W->warp, .lane = l, .place = place};
    rows[l] = (unsigned)(m->info->at + at[l]);
    if (!run->checked) continue;
    if (!inside(run, &by, m, at[l], ROW, ROW)) return 0;
    const EmuStamp me = emu_me(W, l) | (EmuStamp)place << EMU_PLACE_SHIFT;
    const EmuMemoryInfo* info = m->info;
    if (!m->reads)
      emu_exact(W, m, m->data, info->bytes, info->shift, at[l], ROW, 1, me, values != NULL, values);
    else if (values)
      emu_shared_write(W, m, m->data, m->writes, m->reads, info->bytes, info->shift, info->readers,
                       at[l], ROW, 1, me, values);
    else
      emu_shared_read(W, m, m->data, m->writes, m->reads, info->bytes, info->shift, info->readers,
                      info->exact, at[l], ROW, 1, me, own);
  }
  return 1;
}

void emu_ldmatrix(EmuWarp* W, unsigned mask, int place, unsigned* registers, long stride,
                  int memory, const long long* at, int tiles, int transposed) {
  unsigned rows[EMU_LANES];
  EmuRun* run = run_of(W);
  by_the_whole_warp(W, mask, place);
  if (row_places(W, place, &run->memories[memory], at, tiles, rows, NULL))
    tc_ldmatrix(registers, stride, run->blocks->shared, rows, tiles, transposed);
}

void emu_stmatrix(EmuWarp* W, unsigned mask, int place, const unsigned* registers, long stride,
                  int memory, const long long* at, int tiles, int transposed) {
  static const unsigned char
      unknown[ROW]; /* rows that two lanes write are a race whatever they hold */
  unsigned rows[EMU_LANES];
  EmuRun* run = run_of(W);
  by_the_whole_warp(W, mask, place);
  if (row_places(W, place, &run->memories[memory], at, tiles, rows, unknown))
    tc_stmatrix(run->blocks->shared, rows, registers, stride, tiles, transposed);
}

/* ---- mma.sync */
void emu_mma(EmuWarp* W, unsigned mask, int place, const TcAtom* atom, void* accumulator,
             long accumulator_stride, const void* a, long a_stride, const void* b, long b_stride) {
  by_the_whole_warp(W, mask, place);
  tc_mma_sync(atom, accumulator, accumulator_stride, a, a_stride, b, b_stride);
}

/* ---- wgmma: each warp does its 16 rows */
void emu_wgmma(EmuWarp* W, unsigned mask, int place, const TcAtom* atom, void* accumulator,
               long accumulator_stride, const void* a, long a_stride, u64 a_descriptor,
               int a_transposed, u64 b_descriptor, int b_transposed, int keep,
               unsigned long long memories) {
  EmuRun* run = run_of(W);
  by_the_whole_warp(W, mask, place);
  if (run->checked && (W->accumulators_used & memories))
    report_details(run, fault_at(run, ACCUMULATOR, place, -1, 0, W->warp, EMU_LANES), 1,
                   (int[]){ACCUMULATOR_NOT_FENCED});
  W->accumulators_busy |= memories;
  W->groups->mma_open = 1;
  Operation op = {.agent = BY_WGMMA,
                  .place = place,
                  .lane = -1,
                  .number = ++W->groups->mmas,
                  .atom = atom,
                  .accumulator = accumulator,
                  .accumulator_stride = accumulator_stride,
                  .a = a,
                  .a_stride = a_stride,
                  .a_descriptor = a_descriptor,
                  .a_transposed = a_transposed,
                  .b_descriptor = b_descriptor,
                  .b_transposed = b_transposed,
                  .keep = keep};
  issue(W, op);
}

static EmuMemory* memory_at(EmuRun* run, unsigned address) {
  for (int i = 0; i < run->kernel->memory_count; ++i) {
    EmuMemory* m = &run->memories[i];
    if (m->info->space == EMU_SHARED && (long long)address >= m->info->at &&
        (long long)address < m->info->at + m->info->bytes)
      return m;
  }
  return NULL;
}

/* Its operand is read in pieces; says whether all of them are inside a memory. */
static int read_pieces(EmuRun* run, const Operation* op, const unsigned* pieces, int count) {
  const EmuStamp stamp = run->checked
                             ? (EmuStamp)op->number << 32 | (EmuStamp)op->place << EMU_PLACE_SHIFT |
                                   (EmuStamp)(run->mma_slots + op->warp / 4)
                             : 0;
  for (int i = 0; i < count; ++i) {
    EmuMemory* m = memory_at(run, pieces[i]);
    if (!m || (long long)pieces[i] + ROW > m->info->at + m->info->bytes) {
      if (run->checked)
        report(run,
               fault_at(run, BOUNDS, op->place, m ? m->number : -1,
                        m ? (long long)pieces[i] - m->info->at : pieces[i], op->warp, EMU_LANES));
      return 0;
    }
    const long long at = (long long)pieces[i] - m->info->at;
    for (int b = 0; run->checked && b < ROW >> m->info->shift; ++b)
      read_by(run, &op->observer, m, (at >> m->info->shift) + b, stamp,
              m->info->wgmma_reader + op->warp / 4);
  }
  return 1;
}

void execute_mma(EmuRun* run, Operation* op) {
  unsigned a[TC_MOST_PIECES], b[TC_MOST_PIECES];
  const TcAtom* atom = op->atom;
  const int quarter = op->warp & 3, size = BYTES[atom->b];
  int fits = 1;
  if (!op->a)
    fits = read_pieces(run, op, a,
                       tc_operand_pieces(op->a_descriptor, ROWS_OF_A_WARP * quarter, ROWS_OF_A_WARP,
                                         atom->k, size, op->a_transposed, a));
  fits &= read_pieces(
      run, op, b,
      tc_operand_pieces(op->b_descriptor, 0, atom->n, atom->k, size, op->b_transposed, b));
  if (fits)
    tc_wgmma(atom, op->accumulator, op->accumulator_stride, op->a, op->a_stride,
             run->blocks->shared, a, op->a_transposed, b, op->b_transposed, op->keep);
  run->warp[op->warp]->groups->mmas_done = op->number;
}

/* Registers of accumulators are used by ordinary code. */
void emu_accumulators(EmuWarp* W, int place, unsigned long long memories) {
  EmuRun* run = run_of(W);
  if (W->accumulators_busy & memories)
    report_details(run, fault_at(run, ACCUMULATOR, place, -1, 0, W->warp, EMU_LANES), 1,
                   (int[]){ACCUMULATOR_IN_FLIGHT});
  W->accumulators_used |= memories;
}
