/* Where warps of a block meet: barriers of the block, named ones, mbarriers; and how they wait. */
#include "emulated_runtime.h"

/* ---- barriers of the block (number 0) and named ones */
static void report_divergent(EmuWarp* W, int place, const Barrier* barrier) {
  EmuRun* run = run_of(W);
  Fault f = fault_at(run, DIVERGENT_BARRIER, place, -1, 0, W->warp, EMU_LANES);
  f.other_place = barrier->place;
  f.other_warp = barrier->warp;
  f.other_block = run->number;
  f.other_lane = EMU_LANES;
  report(run, f);
}

/* Does a warp know that the last meeting at a barrier is over?  Else it might have joined it. */
static int knows_last_meeting(const EmuWarp* W, const Barrier* barrier) {
  for (int w = 0; w < run_of(W)->warps; ++w)
    if (barrier->who_before >> w & 1 && W->known[w] < barrier->released[w]) return 0;
  return 1;
}

static void check_arrival(EmuWarp* W, unsigned mask, int place, Meeting at) {
  EmuRun* run = run_of(W);
  const int is_named = at.what == WAITS_FOR_NAMED;
  const Barrier* barrier = &run->barriers[at.number];
  if (mask != W->full)
    report_details(run, fault_at(run, DIVERGENT_BARRIER, place, -1, 0, W->warp, emu_first(mask)), 2,
                   (int[]){(int)mask, (int)W->full});
  if (!is_named && barrier->arrived && barrier->place != place) report_divergent(W, place, barrier);
  if (!is_named) return;
  const int otherwise = barrier->arrived && barrier->wanted != at.warps;
  if (otherwise || !knows_last_meeting(W, barrier))
    report_details(run, fault_at(run, DEADLOCK, place, -1, 0, W->warp, EMU_LANES), 4,
                   (int[]){WAITS_FOR_NAMED, at.number, barrier->arrived, at.warps});
}

void arrive(EmuWarp* W, unsigned mask, int place, Meeting at) {
  EmuRun* run = run_of(W);
  Barrier* barrier = &run->barriers[at.number];
  W->waiting = (EmuWaiting){.what = at.what,
                            .place = place,
                            .number = at.number,
                            .generation = barrier->generation,
                            .wanted = at.warps,
                            .mask = mask};
  ++run->moves;
  if (run->checked) {
    check_arrival(W, mask, place, at);
    if (at.starts) {
      if (!barrier->gathered[W->warp]) barrier->gathered[W->warp] = 1;
    } else {
      publish(W, barrier->gathered, W->full);
      meet(W);
    }
  }
  barrier->place = place;
  barrier->warp = W->warp;
  barrier->wanted = at.warps;
  if (at.what == WAITS_FOR_NAMED) barrier->who |= 1u << W->warp;
  if (++barrier->arrived < at.warps) return;
  barrier->arrived = 0;
  barrier->who_before = barrier->who;
  barrier->who = 0;
  ++barrier->generation;
  if (run->checked)
    memcpy(barrier->released, barrier->gathered, sizeof(unsigned) * (size_t)run->slots);
}

void emu_block_barrier(EmuWarp* W, unsigned mask, int place) {
  const EmuRun* run = run_of(W);
  const int rank = rank_of(run, W->warp), number = rank ? BARRIER_OF_CLUSTER + rank : 0;
  arrive(W, mask, place, (Meeting){number, WAITS_FOR_BLOCK, warps_of_block(run), 0});
}

void emu_named_barrier(EmuWarp* W, unsigned mask, int place, long long number, int threads) {
  EmuRun* run = run_of(W);
  if (number < 0 || number >= MOST_NAMED)
    report(run, fault_at(run, BOUNDS, place, -1, number, W->warp, EMU_LANES));
  else
    arrive(W, mask, place, (Meeting){(int)number, WAITS_FOR_NAMED, threads / EMU_LANES, 0});
}

/* ---- mbarriers */
static int index_is_wrong(EmuWarp* W, unsigned mask, int place, int memory, long long index) {
  EmuRun* run = run_of(W);
  const EmuMemoryInfo* info = run->memories[memory].info;
  if (index >= 0 && index * info->item_bytes < info->bytes) return 0;
  report(run,
         fault_at(run, BOUNDS, place, memory, index * info->item_bytes, W->warp, emu_first(mask)));
  return 1;
}

static void misuse(EmuWarp* W, unsigned mask, int place, int memory, long long index, int why,
                   const Mbarrier* barrier) {
  EmuRun* run = run_of(W);
  Fault f = fault_at(run, MBARRIER, place, memory, index * run->memories[memory].info->item_bytes,
                     W->warp, emu_first(mask));
  if (barrier->by) {
    f.other_place = EMU_PLACE(barrier->by);
    f.other_warp = EMU_SLOT(barrier->by);
    f.other_lane = EMU_LANE(barrier->by);
    f.other_block = run->number;
  }
  report_details(run, f, 2, (int[]){why, (int)index});
}

/* Was it fenced, then announced by an arrival at the cluster's barrier that this warp has seen? */
static int was_announced(const EmuWarp* W, const Mbarrier* barrier) {
  return barrier->announced && W->cluster_passed >= barrier->announced;
}

/* The barrier of the block of that rank, if its initialisation is ordered before this use. */
Mbarrier* mbarrier_of(EmuWarp* W, unsigned mask, int place, int memory, long long index, int rank) {
  EmuRun* run = run_of(W);
  if (index_is_wrong(W, mask, place, memory, index)) return NULL;
  const long long first = (long long)rank * run->kernel->mbarriers + run->memories[memory].info->at;
  Mbarrier* barrier = &run->mbarriers[first + index];
  if (!barrier->initialised) {
    if (run->checked) misuse(W, mask, place, memory, index, MBARRIER_NOT_INITIALISED, barrier);
    return NULL;
  }
  for (int l = 0; run->checked && l < W->lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    const Observer by = lane_observer(W, l, place);
    if (ordered(run, &by, barrier->by) || was_announced(W, barrier)) continue;
    misuse(W, mask, place, memory, index, MBARRIER_NOT_INITIALISED, barrier);
    break;
  }
  return barrier;
}

/* That of the own block. */
static Mbarrier* mbarrier_at(EmuWarp* W, unsigned mask, int place, int memory, long long index) {
  return mbarrier_of(W, mask, place, memory, index, rank_of(run_of(W), W->warp));
}

/* For a bulk copy, which sees the barrier through another proxy. */
Mbarrier* usable_mbarrier(EmuWarp* W, unsigned mask, int place, int memory, long long index) {
  EmuRun* run = run_of(W);
  Mbarrier* barrier = mbarrier_at(W, mask, place, memory, index);
  if (!barrier || !run->checked) return barrier;
  const Observer by = lane_observer(W, emu_first(mask), place);
  if (!barrier->fenced || !ordered(run, &by, barrier->fenced))
    misuse(W, mask, place, memory, index, MBARRIER_NOT_FENCED, barrier);
  return barrier;
}

void emu_mbarrier_init(EmuWarp* W, unsigned mask, int place, int memory, long long index,
                       long long count) {
  EmuRun* run = run_of(W);
  if (index_is_wrong(W, mask, place, memory, index)) return;
  const int first = rank_of(run, W->warp) * run->kernel->mbarriers + run->memories[memory].info->at;
  Mbarrier* barrier = &run->mbarriers[first + index];
  if (run->checked && barrier->initialised)
    misuse(W, mask, place, memory, index, MBARRIER_INITIALISED_TWICE, barrier);
  barrier->count = barrier->pending = (int)count;
  barrier->initialised = 1;
  barrier->bytes = 0;
  barrier->phase = barrier->awaited = barrier->loading = 0;
  barrier->passed_count = barrier->arrival_count = 0;
  barrier->fenced = barrier->early = barrier->early_phase = 0;
  barrier->announced = 0;
  barrier->by = emu_me(W, emu_first(mask)) | (EmuStamp)place << EMU_PLACE_SHIFT;
  if (!run->checked) return;
  memset(barrier->gathered, 0, sizeof(unsigned) * (size_t)(VECTORS_OF_MBARRIER * run->slots));
}

/* FENCE(MBAR_INIT): of barriers that these lanes have initialised. */
void fence_initialised(EmuWarp* W, unsigned mask) {
  EmuRun* run = run_of(W);
  for (int i = 0; i < mbarriers_of(run); ++i) {
    Mbarrier* barrier = &run->mbarriers[i];
    const int mine = barrier->initialised && EMU_SLOT(barrier->by) == W->warp &&
                     mask >> EMU_LANE(barrier->by) & 1;
    if (mine) barrier->fenced = emu_me(W, EMU_LANE(barrier->by));
  }
  tick(W);
}

static const EmuMemory* memory_of(const EmuRun* run, const Mbarrier* barrier) {
  const long long number = (barrier - run->mbarriers) % run->kernel->mbarriers;
  const EmuMemory* m = run->memories;
  while (m->info->space != EMU_MBARRIERS || number < m->info->at ||
         number >= m->info->at + m->info->bytes / m->info->item_bytes)
    ++m;
  return m;
}

static void report_mbarrier(EmuRun* run, const Mbarrier* barrier, EmuStamp access, int why) {
  const EmuMemory* m = memory_of(run, barrier);
  const int index = (int)(barrier - run->mbarriers) % run->kernel->mbarriers - m->info->at;
  Fault f =
      fault_at(run, MBARRIER, EMU_PLACE(access), m->number, (long long)index * m->info->item_bytes,
               EMU_SLOT(access), access & EMU_SEVERAL ? EMU_LANES : EMU_LANE(access));
  report_details(run, f, 2, (int[]){why, index});
}

/* Whoever waits for a phase must have come through before the next one can end: lanes are not in
 * lockstep, and a wait that comes too late would wait for the parity to come round again.  That an
 * MMA has ended which a warp started after its wait says so too: its warpgroup works as one. */
static void check_waits(EmuRun* run, Mbarrier* barrier) {
  const Observer by = {.warp = -1, .lane = -1, .known = barrier->gathered};
  for (int i = 0; i < barrier->passed_count; ++i) {
    const Passed wait = barrier->passed[i];
    const int group = run->mma_slots + EMU_SLOT(wait.stamp) / 4;
    if (ordered(run, &by, wait.stamp) || (wait.mma && barrier->gathered[group] >= wait.mma))
      continue;
    report_mbarrier(run, barrier, wait.stamp, MBARRIER_LATE_WAIT);
  }
  barrier->passed_count = 0;
}

void complete_phase(EmuRun* run, Mbarrier* barrier) {
  if (barrier->pending || barrier->bytes) return;
  ++run->moves;
  ++barrier->phase;
  barrier->pending = barrier->count;
  if (!run->checked) return;
  const size_t size = sizeof(unsigned) * (size_t)run->slots;
  check_waits(run, barrier);
  memcpy(barrier->earlier, barrier->arrived, size);
  memcpy(barrier->arrived, barrier->gathered, size);
  barrier->gathered[run->mbarrier_slots + (barrier - run->mbarriers)] = barrier->phase;
  memcpy(barrier->released, barrier->gathered, size);
}

/* How many arrivals does a lane know of? */
static u64 known_arrivals(const EmuWarp* W, int lane, const Mbarrier* barrier) {
  const EmuRun* run = run_of(W);
  const Observer by = lane_observer(W, lane, 0);
  u64 count = 0;
  for (int i = 0; i < barrier->arrival_count; ++i) {
    const Arrival* a = &barrier->arrivals[i];
    const EmuStamp stamp = (EmuStamp)a->clock << 32 | (EmuStamp)a->warp;
    for (int l = 0; l < EMU_LANES; ++l)
      count += a->mask >> l & 1 && ordered(run, &by, stamp | (EmuStamp)l << EMU_LANE_SHIFT);
  }
  return count;
}

/* Does a lane know that a phase has ended: since someone has waited for it, since all its arrivals
 * are known, or enough of them, whichever they were (unordered ones may have counted for one phase
 * or another)?  Arrivals say nothing of bytes that have not come. */
static int knows_phase(const EmuWarp* W, int lane, const Mbarrier* barrier, unsigned phase,
                       const unsigned* arrivals) {
  const EmuRun* run = run_of(W);
  const unsigned* known = known_by(W, lane);
  const int slot = run->mbarrier_slots + (int)(barrier - run->mbarriers);
  if (known[slot] >= phase) return 1;
  if (barrier->loading) return 0;
  for (int i = 0; i < run->used_slots; ++i) {
    if (i == slot || known[i] >= arrivals[i]) continue;
    const Elected* who = &run->elects[i];
    const int is_elected = i > run->several_writes;
    const int own = is_elected && who->warp == W->warp && who->lane == lane;
    if (!own && !(is_elected && known[who->warp_slot] >= arrivals[i]))
      return known_arrivals(W, lane, barrier) >= (u64)phase * (u64)barrier->count;
  }
  return 1;
}

static void remember_arrival(const EmuWarp* W, unsigned mask, Mbarrier* barrier) {
  if (barrier->arrival_count == barrier->arrival_room) {
    barrier->arrival_room = barrier->arrival_room ? 2 * barrier->arrival_room : 8;
    barrier->arrivals =
        realloc(barrier->arrivals, sizeof(Arrival) * (size_t)barrier->arrival_room);
  }
  barrier->arrivals[barrier->arrival_count++] = (Arrival){W->warp, W->clock, mask};
}

/* An arrival whose lane does not know that the phase before has ended might count for that one, in
 * place of another lane's; who waits for that phase would then not be ordered after the other, and
 * where bytes hold the phase open it might be one too many. */
static void check_early(EmuWarp* W, unsigned mask, int place, Mbarrier* barrier) {
  EmuRun* run = run_of(W);
  for (int l = 0; l < W->lanes && barrier->phase; ++l) {
    if (!(mask >> l & 1) || knows_phase(W, l, barrier, barrier->phase, barrier->arrived)) continue;
    barrier->early = emu_me(W, l) | (EmuStamp)place << EMU_PLACE_SHIFT;
    barrier->early_phase = barrier->phase;
    if (barrier->awaited || barrier->loading)
      report_mbarrier(run, barrier, barrier->early, MBARRIER_EARLY_ARRIVAL);
    return;
  }
}

/* One arrival a lane of the mask. */
void emu_arrive(EmuWarp* W, unsigned mask, int place, int memory, long long index,
                long long bytes) {
  EmuRun* run = run_of(W);
  Mbarrier* barrier = mbarrier_at(W, mask, place, memory, index);
  if (!barrier) return;
  if (run->checked) {
    check_early(W, mask, place, barrier);
    if (bytes && barrier->early)
      report_mbarrier(run, barrier, barrier->early, MBARRIER_EARLY_ARRIVAL);
    publish(W, barrier->gathered, mask);
    if (!barrier->loading) remember_arrival(W, mask, barrier);
    tick(W);
  }
  ++run->moves;
  for (int l = 0; l < W->lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    barrier->bytes += bytes;
    if (--barrier->pending < 0 && run->checked) {
      misuse(W, mask, place, memory, index, MBARRIER_TOO_MANY, barrier);
      barrier->pending = 0;
    }
    complete_phase(run, barrier);
  }
}

void emu_mbarrier_wait(EmuWarp* W, unsigned mask, int place, int memory, long long index,
                       int parity) {
  EmuRun* run = run_of(W);
  Mbarrier* barrier = mbarrier_at(W, mask, place, memory, index);
  if (!barrier) return;
  W->waiting = (EmuWaiting){.what = WAITS_FOR_MBARRIER,
                            .place = place,
                            .number = (int)(barrier - run->mbarriers),
                            .generation = memory,
                            .wanted = parity & 1,
                            .mask = mask};
}

static void remember_passed(EmuWarp* W, Mbarrier* barrier, EmuStamp stamp) {
  if (barrier->passed_count == barrier->passed_room) {
    barrier->passed_room = barrier->passed_room ? 2 * barrier->passed_room : 8;
    barrier->passed = realloc(barrier->passed, sizeof(Passed) * (size_t)barrier->passed_room);
  }
  barrier->passed[barrier->passed_count++] = (Passed){stamp, W->groups ? W->groups->mmas + 1 : 0};
}

/* Has the phase of this parity ended?  A fresh barrier's "phase before" has parity 1. */
static int phase_has_passed(EmuWarp* W) {
  EmuRun* run = run_of(W);
  const EmuWaiting* waiting = &W->waiting;
  Mbarrier* barrier = &run->mbarriers[waiting->number];
  if (!((barrier->phase ^ (unsigned)waiting->wanted) & 1)) return 0;
  if (!run->checked) return 1;
  /* A lane that does not know of the phase before could have been let through then, by the same
   * parity. */
  const EmuStamp place = (EmuStamp)waiting->place << EMU_PLACE_SHIFT;
  for (int l = 0; l < W->lanes && barrier->phase; ++l) {
    if (!(waiting->mask >> l & 1) ||
        knows_phase(W, l, barrier, barrier->phase - 1, barrier->earlier))
      continue;
    report_mbarrier(run, barrier, emu_me(W, l) | place, MBARRIER_PARITY_ALIAS);
    break;
  }
  if (barrier->phase && barrier->early && barrier->phase <= barrier->early_phase)
    report_mbarrier(run, barrier, barrier->early, MBARRIER_EARLY_ARRIVAL);
  if (barrier->awaited < barrier->phase) barrier->awaited = barrier->phase;
  learn(W, barrier->released, waiting->mask);
  if (waiting->mask == W->full) {
    remember_passed(W, barrier, emu_me(W, 0) | place | EMU_SEVERAL);
    return 1;
  }
  for (int l = 0; l < W->lanes; ++l)
    if (waiting->mask >> l & 1) remember_passed(W, barrier, emu_me(W, l) | place);
  return 1;
}

/* ---- what a stopped warp asks each time it is resumed */
int emu_passed(EmuWarp* W) {
  EmuRun* run = run_of(W);
  const EmuWaiting waiting = W->waiting;
  switch (waiting.what) {
    case 0: return 1;
    case WAITS_FOR_MBARRIER:
      if (!phase_has_passed(W)) return 0;
      break;
    case WAITS_FOR_GROUP:
      if (!groups_are_done(W)) return 0;
      break;
    default:
      if (run->barriers[waiting.number].generation == waiting.generation) return 0;
      if (run->checked) learn(W, run->barriers[waiting.number].released, W->full);
      if (waiting.what == WAITS_FOR_CLUSTER) W->cluster_passed = waiting.generation + 1;
  }
  W->waiting.what = 0;
  ++run->moves;
  return 1;
}
