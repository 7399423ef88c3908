/* Blocks of a cluster: their barrier, and who may touch what another block holds.
 *
 * A block's shared memory is there from its start to its end.  Another block's access must come
 * after the one (some warp of the block has said so, at a barrier) and before the other (some warp
 * of the block knows of the access as it ends).  That a block has started is what its warps do at
 * clock 1; accesses begin at 2.
 */
#include "emulated_runtime.h"

static void report_cluster(EmuWarp* W, int place, int memory, long long offset, int lane, int why,
                           int rank) {
  EmuRun* run = run_of(W);
  report_details(run, fault_at(run, CLUSTER, place, memory, offset, W->warp, lane), 2,
                 (int[]){why, rank});
}

/* ---- the barrier */
void emu_cluster_arrive(EmuWarp* W, unsigned mask, int place) {
  const EmuRun* run = run_of(W);
  if (run->checked && W->has_arrived)
    report_cluster(W, place, -1, 0, EMU_LANES, CLUSTER_ARRIVED_TWICE, rank_of(run, W->warp));
  arrive(W, mask, place, (Meeting){BARRIER_OF_CLUSTER, WAITS_FOR_CLUSTER, run->warps, 1});
  for (int i = 0; run->checked && i < mbarriers_of(run); ++i) { /* mbarriers that it has fenced */
    Mbarrier* barrier = &run_of(W)->mbarriers[i];
    if (barrier->initialised && barrier->fenced && EMU_SLOT(barrier->fenced) == W->warp)
      barrier->announced = W->waiting.generation + 1;
  }
  W->awaited = W->waiting.generation;
  W->has_arrived = 1;
  W->waiting.what = 0;
}

void emu_cluster_wait(EmuWarp* W, unsigned mask, int place) {
  if (!W->has_arrived) {
    const EmuRun* run = run_of(W);
    if (run->checked)
      report_cluster(W, place, -1, 0, EMU_LANES, CLUSTER_NOT_ARRIVED, rank_of(run, W->warp));
    return;
  }
  W->has_arrived = 0;
  W->waiting = (EmuWaiting){.what = WAITS_FOR_CLUSTER,
                            .place = place,
                            .number = BARRIER_OF_CLUSTER,
                            .generation = W->awaited,
                            .wanted = run_of(W)->warps,
                            .mask = mask};
}

void emu_cluster_barrier(EmuWarp* W, unsigned mask, int place) {
  const EmuRun* run = run_of(W);
  if (run->checked && W->has_arrived)
    report_cluster(W, place, -1, 0, EMU_LANES, CLUSTER_ARRIVED_TWICE, rank_of(run, W->warp));
  arrive(W, mask, place, (Meeting){BARRIER_OF_CLUSTER, WAITS_FOR_CLUSTER, run->warps, 0});
}

/* ---- accesses of what other blocks hold */
static long long part_of(const EmuRun* run, const EmuMemory* m) {
  return m->info->bytes / run->cluster;
}

static int has_started(const EmuRun* run, const unsigned* known, int rank) {
  const int count = warps_of_block(run);
  for (int w = rank * count; w < (rank + 1) * count; ++w)
    if (known[w]) return 1;
  return 0;
}

void emu_reach(EmuWarp* W, const EmuMemory* m, long long at, EmuStamp me) {
  EmuRun* run = run_of(W);
  if (at < 0 || at >= m->info->bytes) return; /* the access itself is reported */
  const int rank = (int)(at / part_of(run, m)), lane = EMU_LANE(me);
  if (rank == rank_of(run, W->warp) || has_started(run, known_by(W, lane), rank)) return;
  report_cluster(W, EMU_PLACE(me), m->number, at, lane, CLUSTER_NOT_STARTED, rank);
}

/* st.async: the value is there at once, but known only where its bytes have been waited for. */
void emu_send(EmuWarp* W, int lane, int place, int to, long long at, int width, int barriers,
              long long barrier_index, const void* value) {
  EmuRun* run = run_of(W);
  EmuMemory* m = &run->memories[to];
  Observer by = lane_observer(W, lane, place);
  const EmuStamp me = emu_me(W, lane) | (EmuStamp)place << EMU_PLACE_SHIFT;
  if (run->checked && !inside(run, &by, m, at, width, width)) return;
  const int rank = (int)(at / part_of(run, m));
  if (run->checked) emu_reach(W, m, at, me);
  Mbarrier* barrier = mbarrier_of(W, 1u << lane, place, barriers, barrier_index, rank);
  if (!barrier) return;
  if (run->checked) {
    by.agent = BY_SENDER;
    const EmuStamp stamp = (EmuStamp)(barrier->phase + 1) << 32 | (me & 0xfffffc00) |
                           (EmuStamp)(run->mbarrier_slots + (barrier - run->mbarriers));
    for (int k = 0; k < width >> m->info->shift; ++k)
      write_by(run, &by, m, (at >> m->info->shift) + k, stamp,
               (const char*)value + ((long long)k << m->info->shift), 1 << m->info->shift);
    barrier->loading = barrier->phase + 1;
    barrier->load = me;
  }
  memcpy(m->data + at, value, (size_t)width);
  barrier->bytes -= width;
  complete_phase(run, barrier);
}

/* What the warps of a block know as they end. */
static void known_at_end(EmuRun* run, int rank, unsigned* known) {
  const int count = warps_of_block(run);
  memset(known, 0, sizeof(unsigned) * (size_t)run->slots);
  for (int w = rank * count; w < (rank + 1) * count; ++w) {
    EmuWarp* W = run->warp[w];
    publish(W, known, W->full);
  }
}

static void was_there(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                      EmuStamp stamp, int rank) {
  const int slot = EMU_SLOT(stamp);
  if (!stamp || slot == run->several_writes || ordered(run, by, stamp)) return;
  const int is_sent = slot >= run->warps, warp = is_sent ? rank * warps_of_block(run) : slot;
  if (!is_sent && rank_of(run, warp) == rank) return;
  report_cluster(run->warp[warp], EMU_PLACE(stamp), m->number, granule << m->info->shift,
                 stamp & EMU_SEVERAL ? EMU_LANES : EMU_LANE(stamp), CLUSTER_ENDED, rank);
}

/* Once a cluster has ended: did all accesses of other blocks' memory come before their ends? */
void all_blocks_were_there(EmuRun* run) {
  unsigned* known = malloc(sizeof(unsigned) * (size_t)run->slots);
  const Observer by = {.warp = -1, .lane = -1, .known = known};
  for (int rank = 0; rank < run->cluster; ++rank) {
    known_at_end(run, rank, known);
    for (int i = 0; i < run->kernel->memory_count; ++i) {
      const EmuMemory* m = &run->memories[i];
      if (m->info->space != EMU_CLUSTER) continue;
      const long long part = part_of(run, m) >> m->info->shift;
      for (long long g = rank * part; g < (rank + 1) * part; ++g) {
        was_there(run, &by, m, g, m->writes[g], rank);
        for (int r = 0; r < m->info->readers; ++r)
          was_there(run, &by, m, g, m->reads[g * m->info->readers + r], rank);
      }
    }
  }
  free(known);
}
