/* A launch: blocks one after another, their warps in some order, and what is told at the end. */
#include "emulated_runtime.h"

/* ---- random numbers: xorshift64 (Marsaglia 2003, "Xorshift RNGs") */
static void seed_random(EmuRun* run, unsigned seed) {
  run->random = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
}

u64 next_random(EmuRun* run) {
  run->random ^= run->random << 13;
  run->random ^= run->random >> 7;
  run->random ^= run->random << 17;
  return run->random >> 11;
}

/* ---- events and prints */
/* The number of a thread in its block. */
static int thread_of(const EmuWarp* W, int lane) {
  return EMU_LANES * (W->warp % warps_of_block(run_of(W))) + lane;
}

static Event* new_event(EmuWarp* W, int what, int place, int lane) {
  const EmuRun* run = run_of(W);
  Request* request = run->request;
  if (request->event_count == request->event_room) {
    request->event_room = request->event_room ? 2 * request->event_room : 256;
    request->events = realloc(request->events, sizeof(Event) * (size_t)request->event_room);
  }
  Event* event = &request->events[request->event_count++];
  memset(event, 0, sizeof *event);
  event->what = what;
  event->place = place;
  event->block = run->number + rank_of(run, W->warp);
  event->thread = thread_of(W, lane);
  event->address = -1;
  return event;
}

void emu_print(EmuWarp* W, int lane, int place, int position, u64 bits) {
  Event* event = new_event(W, EVENT_PRINT, place, lane);
  event->position = position;
  event->bits = bits;
}

void emu_assert(EmuWarp* W, int lane, int place) {
  EmuRun* run = run_of(W);
  report(run, fault_at(run, ASSERTION, place, -1, 0, W->warp, lane));
}

/* Details: the exact value in four parts, the lowest first, and the bits that it does not fit. */
void emu_index_wraps(EmuWarp* W, int memory, EmuStamp me, long long at, const long double* exact,
                     int bits) {
  EmuRun* run = run_of(W);
  const long double word = 18446744073709551616.0L, most = word * 4611686018427387904.0L;
  const long double value = *exact > most ? most : *exact < -most ? -most : *exact;
  long long high = (long long)(value / word);
  if ((long double)high * word > value) --high;
  const u64 low = (u64)(value - (long double)high * word);
  const long long offset = at * run->memories[memory].info->item_bytes;
  report_details(
      run, fault_at(run, INDEX_OVERFLOW, EMU_PLACE(me), memory, offset, W->warp, EMU_LANE(me)), 5,
      (int[]){(int)low, (int)(low >> 32), (int)high, (int)((u64)high >> 32), bits});
}

int emu_traced(const EmuWarp* W, int lane) {
  const EmuRun* run = run_of(W);
  for (int i = 0; i < run->request->traced_count; ++i)
    if (run->request->traced[2 * i] == run->number + rank_of(run, W->warp) &&
        run->request->traced[2 * i + 1] == thread_of(W, lane))
      return 1;
  return 0;
}

void emu_trace(EmuWarp* W, int lane, int what, int place, u64 bits, long long address, int loops,
               const long long* values) {
  Event* event = new_event(W, what, place, lane);
  event->bits = bits;
  event->address = address;
  event->loops = loops;
  memcpy(event->values, values, sizeof(long long) * (size_t)loops);
}

/* An effect that lanes come to. */
void emu_tell(EmuWarp* W, unsigned mask, int place, int loops, const long long* values) {
  for (int l = 0; l < W->lanes; ++l)
    if (mask >> l & 1 && emu_traced(W, l))
      emu_trace(W, l, EVENT_EFFECT, place, 0, -1, loops, values);
}

/* An access that is made now: of a write `bits` says what will stand there. */
void* emu_watch(EmuWarp* W, int lane, int place, const void* memory, void* data, int width,
                const void* bits, int loops, const long long* values) {
  if (!emu_traced(W, lane)) return data;
  u64 value = 0;
  memcpy(&value, bits ? bits : data, (size_t)(width < 8 ? width : 8));
  emu_trace(W, lane, EVENT_ACCESS, place, value, (const char*)data - (const char*)memory, loops,
            values);
  return data;
}

/* ---- memory of a launch */
static int is_shared(const EmuMemoryInfo* info) {
  return info->space == EMU_SHARED || info->space == EMU_CLUSTER;
}

/* Of a SHARED or CLUSTER memory: of writes, readers and past writes. */
static long long stamps_of(const EmuMemoryInfo* info) {
  const long long granules = (info->bytes >> info->shift) + 1;
  return granules * (2 + info->readers);
}

/* A bundle in checked text is one memory: gaps are never accessed (`emu_segment`). */
static long long length_of(const EmuMemory* m, long long which) {
  const long long count = m->info->bytes / (m->info->segment * m->info->item_bytes);
  return (long long)m->table[count + which];
}

static void copy_segments(EmuMemory* m, int back) {
  const long long size = m->info->segment * m->info->item_bytes;
  for (long long i = 0; i < m->info->bytes / size; ++i) {
    void* const there = (void*)m->table[i];
    const size_t bytes = (size_t)(length_of(m, i) * m->info->item_bytes);
    if (bytes) memcpy(back ? there : m->data + i * size, back ? m->data + i * size : there, bytes);
  }
}

static int gather_segments(EmuMemory* m) {
  m->table = (const u64*)m->data;
  m->data = malloc((size_t)m->info->bytes);
  if (!m->data) return 0;
  copy_segments(m, 0);
  return 1;
}

/* The memories of the first block of a cluster are all but the SHARED ones of the others. */
static void make_memories_of_others(EmuRun* run) {
  const int count = run->kernel->memory_count;
  for (int rank = 1; rank < run->cluster; ++rank) {
    EmuMemory* mine = run->blocks[rank].memories = run->memories + rank * count;
    memcpy(mine, run->memories, sizeof(EmuMemory) * (size_t)count);
    for (int i = 0; i < count; ++i) {
      EmuMemory* m = &mine[i];
      const EmuMemoryInfo* info = m->info;
      if (info->space != EMU_SHARED) continue;
      const long long granules = (info->bytes >> info->shift) + 1;
      m->number = rank * count + i;
      m->data = run->blocks[rank].shared + info->at;
      if (!run->checked) continue;
      m->writes = calloc((size_t)stamps_of(info), sizeof(EmuStamp));
      m->reads = info->readers ? m->writes + granules : NULL;
      m->past_writes = m->writes + granules * (1 + info->readers);
    }
  }
}

static int make_memories(EmuRun* run, void** args) {
  const EmuKernel* kernel = run->kernel;
  const int count = run->cluster * kernel->memory_count;
  run->memories = calloc((size_t)count + 1, sizeof(EmuMemory));
  run->blocks->memories = run->memories;
  for (int i = 0; i < kernel->memory_count; ++i) {
    EmuMemory* m = &run->memories[i];
    const EmuMemoryInfo* info = m->info = &kernel->memories[i];
    const long long granules = (info->bytes >> info->shift) + 1;
    m->number = i;
    if (is_shared(info)) {
      m->data = info->space == EMU_SHARED ? run->blocks->shared + info->at
                                          : run->blocks->cluster + run->cluster * info->at;
      if (!run->checked) continue;
      m->writes = calloc((size_t)stamps_of(info), sizeof(EmuStamp));
      m->reads = info->readers ? m->writes + granules : NULL;
      m->past_writes = m->writes + granules * (1 + info->readers);
    } else if (info->space == EMU_GLOBAL) {
      m->data = args[info->at];
      if (run->checked && info->segment && !gather_segments(m)) return 0;
      m->initialised = run->request->initialised ? run->request->initialised[info->at] : info->read;
      if (!run->checked || !info->written) continue;
      m->writes = calloc((size_t)granules, sizeof(EmuStamp));
      m->write_blocks = calloc((size_t)granules, sizeof(unsigned));
    }
  }
  make_memories_of_others(run);
  return 1;
}

static void free_memories(EmuRun* run) {
  for (int i = 0; i < run->cluster * run->kernel->memory_count; ++i) {
    EmuMemory* m = &run->memories[i];
    if (i >= run->kernel->memory_count && m->info && m->info->space != EMU_SHARED) continue;
    free(m->writes);
    free(m->write_blocks);
    if (m->table && m->data) {
      if (m->info->written) copy_segments(m, 1);
      free(m->data);
    }
  }
  free(run->memories);
}

static int vectors_of(const EmuRun* run) {
  return run->warps + VECTORS_OF_BARRIER * run->barrier_count +
         VECTORS_OF_MBARRIER * mbarriers_of(run);
}

static void make_clocks(EmuRun* run) {
  const EmuKernel* kernel = run->kernel;
  const int groups = (run->warps + 3) / 4, vectors = vectors_of(run);
  run->mma_slots = (kernel->engines ? KINDS : 1) * run->warps;
  run->mbarrier_slots = run->mma_slots + groups;
  run->several_writes = run->mbarrier_slots + mbarriers_of(run);
  run->used_slots = run->several_writes + 1;
  const int elects = (kernel->engines ? KINDS : kernel->alone) * run->warps * EMU_LANES;
  run->layer = run->used_slots + elects;
  run->slots = (kernel->fences ? LAYERS : 1) * run->layer;
  run->clocks = calloc((size_t)vectors * (size_t)run->slots, sizeof(unsigned));
  run->elects = calloc((size_t)run->layer, sizeof(Elected));
  run->elected = calloc((size_t)(KINDS * run->warps * EMU_LANES), sizeof(short));
  unsigned* next = run->clocks + run->warps * run->slots;
  for (int i = 0; i < run->barrier_count; ++i, next += VECTORS_OF_BARRIER * run->slots) {
    run->barriers[i].gathered = next;
    run->barriers[i].released = next + run->slots;
  }
  for (int i = 0; i < mbarriers_of(run); ++i, next += VECTORS_OF_MBARRIER * run->slots) {
    Mbarrier* barrier = &run->mbarriers[i];
    barrier->gathered = next;
    barrier->released = next + run->slots;
    barrier->arrived = next + 2 * run->slots;
    barrier->earlier = next + 3 * run->slots;
  }
}

/* ---- the start of a block: nothing is left of the one before */
static void start_clocks(EmuRun* run) {
  const EmuKernel* kernel = run->kernel;
  const int vectors = vectors_of(run);
  memset(run->clocks, 0, sizeof(unsigned) * (size_t)vectors * (size_t)run->slots);
  memset(run->elected, 0, sizeof(short) * (size_t)(KINDS * run->warps * EMU_LANES));
  run->used_slots = run->several_writes + 1;
  forget_accesses(&run->shared_accesses);
  forget_accesses(&run->uninitialised);
  for (int i = 0; i < run->cluster * kernel->memory_count; ++i) {
    const EmuMemoryInfo* info = run->memories[i].info;
    if (is_shared(info))
      memset(run->memories[i].writes, 0, sizeof(EmuStamp) * (size_t)stamps_of(info));
  }
}

static void start_warp(EmuRun* run, int number) {
  const EmuKernel* kernel = run->kernel;
  EmuWarp* W = run->warp[number];
  EmuGroups* groups = W->groups;
  const int rest = kernel->threads - EMU_LANES * (number % warps_of_block(run));
  memset(W, 0xff, (size_t)kernel->state_bytes);
  memset(W, 0, sizeof *W);
  W->warp = number;
  W->lanes = rest < EMU_LANES ? rest : EMU_LANES;
  W->full = W->lanes == EMU_LANES ? ~0u : (1u << W->lanes) - 1;
  const int backward = run->request->lanes == BACKWARD;
  W->first = backward ? W->lanes - 1 : 0;
  W->stop = backward ? -1 : W->lanes;
  W->step = backward ? -1 : 1;
  W->mutation = run->request->mutation;
  W->clock = run->cluster > 1 ? 2 : 1; /* at 1 a block of a cluster starts */
  W->known = run->clocks + number * run->slots;
  W->block = &run->blocks[rank_of(run, number)];
  W->accumulators_used = ~0ull;
  W->views = run->views[number];
  W->groups = groups;
  if (groups) memset(groups, 0, sizeof *groups);
}

static void end_warp(EmuWarp* W) {
  for (int i = 0; i < W->view_count; ++i) free(W->views[i].known);
  if (W->snapshot) drop_snapshot(W->snapshot);
  W->snapshot = NULL;
  W->view_count = 0;
}

/* number: of the cluster, where there are any: its blocks are neighbours on the first axis. */
static void start_block(EmuRun* run, int number) {
  const EmuKernel* kernel = run->kernel;
  const size_t bytes = (size_t)kernel->shared_bytes;
  run->number = number * run->cluster;
  for (int rank = 0; rank < run->cluster; ++rank) {
    EmuBlock* block = &run->blocks[rank];
    block->writer = (unsigned)number + 1;
    for (int axis = 0, rest = run->number + rank; axis < kernel->grid_axes; ++axis) {
      block->place[axis] = rest % kernel->grid[axis];
      rest /= kernel->grid[axis];
    }
    if (bytes) memset(block->shared, 0xff, bytes);
    if (bytes && run->cluster > 1) memset(block->cluster + (size_t)rank * bytes, 0xff, bytes);
  }
  for (int i = 0; i < run->barrier_count; ++i) {
    Barrier* barrier = &run->barriers[i];
    barrier->arrived = barrier->generation = 0;
    barrier->who = barrier->who_before = 0;
  }
  for (int i = 0; i < mbarriers_of(run); ++i) run->mbarriers[i].initialised = 0;
  if (run->checked) start_clocks(run);
  for (int w = 0; w < run->warps; ++w) start_warp(run, w);
}

/* ---- a block */
static void order_warps(EmuRun* run, int* order) {
  for (int i = 0; i < run->warps; ++i)
    order[i] = run->request->order == BACKWARD ? run->warps - 1 - i : i;
  if (run->request->order != SHUFFLED) return;
  for (int i = run->warps - 1; i > 0; --i) {
    const int j = (int)(next_random(run) % (u64)(i + 1)), moved = order[i];
    order[i] = order[j];
    order[j] = moved;
  }
}

/* What a warp waits for, in numbers. */
static void report_stuck(EmuRun* run, const EmuWarp* W, int done) {
  const EmuWaiting* waiting = &W->waiting;
  const int lane = waiting->mask == W->full ? EMU_LANES : emu_first(waiting->mask);
  const int meets = waiting->what == WAITS_FOR_BLOCK || waiting->what == WAITS_FOR_CLUSTER;
  if (meets && done) { /* others have left without it */
    report_details(run, fault_at(run, DIVERGENT_BARRIER, waiting->place, -1, 0, W->warp, lane), 2,
                   (int[]){(int)waiting->mask, (int)W->full});
    return;
  }
  int details[MOST_DETAILS] = {waiting->what, waiting->number}, count = 2, memory = -1;
  if (waiting->what == WAITS_FOR_NAMED) {
    details[2] = run->barriers[waiting->number].arrived;
    details[3] = waiting->wanted;
    count = 4;
  } else if (waiting->what == WAITS_FOR_MBARRIER) {
    const Mbarrier* barrier = &run->mbarriers[waiting->number];
    memory = waiting->generation;
    details[1] = waiting->number % run->kernel->mbarriers - run->memories[memory].info->at;
    details[2] = waiting->wanted;
    details[3] = barrier->pending;
    details[4] = (int)barrier->bytes;
    count = 5;
  }
  report_details(run, fault_at(run, DEADLOCK, waiting->place, memory, 0, W->warp, lane), count,
                 details);
}

/* How many warps that might meet this one have ended. */
static int ended_before(const EmuRun* run, const EmuWarp* W) {
  const int of_block = W->waiting.what == WAITS_FOR_BLOCK, rank = rank_of(run, W->warp);
  int done = 0;
  for (int w = 0; w < run->warps; ++w)
    done += run->warp[w]->pc < 0 && (!of_block || rank_of(run, w) == rank);
  return done;
}

static void nobody_can_move(EmuRun* run) {
  for (int w = 0; w < run->warps; ++w)
    if (run->warp[w]->pc >= 0) report_stuck(run, run->warp[w], ended_before(run, run->warp[w]));
  run->code = DEADLOCKED;
  run->stopped = 1;
}

/* Resumes a warp up to its next wait.  Says whether it is done. */
static int resume(EmuRun* run, EmuWarp* W) {
  if (run->kernel->run(W)) return 0;
  W->pc = -1;
  ++run->moves;
  if (run->checked && W->groups) all_work_was_waited_for(W);
  return 1;
}

static void let_engines_work(EmuRun* run) {
  if (run->request->engine != RANDOM || next_random(run) % 2) return;
  for (u64 left = next_random(run) % 64; run->queued && left; --left)
    step_engine(run, (unsigned)next_random(run));
}

static void run_block(EmuRun* run) {
  int left = run->warps, order[MOST_WARPS];
  while (left && !run->stopped) {
    const long long moves = run->moves;
    order_warps(run, order);
    for (int i = 0; i < run->warps && !run->stopped; ++i) {
      EmuWarp* W = run->warp[order[i]];
      if (W->pc >= 0) left -= resume(run, W);
      if (run->queued) let_engines_work(run);
    }
    if (run->moves != moves || run->stopped || !left) continue;
    if (run->queued)
      step_engine(run, run->request->engine == RANDOM ? (unsigned)next_random(run) : 0);
    else
      nobody_can_move(run);
  }
  while (run->queued && !run->stopped) step_engine(run, 0);
  if (run->checked && !run->stopped) all_loads_were_waited_for(run);
  if (run->checked && !run->stopped && run->cluster > 1) all_blocks_were_there(run);
}

/* ---- after the last block */
/* Is a byte of a bundle in none of its memories? */
static int is_gap(const EmuMemory* m, long long offset) {
  if (!m->table) return 0;
  const long long at = offset / m->info->item_bytes;
  return at % m->info->segment >= length_of(m, at / m->info->segment);
}

static void check_outputs(EmuRun* run) {
  for (int i = 0; i < run->kernel->memory_count; ++i) {
    const EmuMemory* m = &run->memories[i];
    if (m->info->space != EMU_GLOBAL || !m->writes || m->initialised) continue;
    const long long granules = m->info->bytes >> m->info->shift;
    long long first = -1;
    int missing = 0;
    for (long long g = 0; g < granules; ++g) {
      if (m->writes[g] || is_gap(m, g << m->info->shift)) continue;
      if (!missing++) first = g;
    }
    if (missing)
      report_details(run, fault_at(run, UNWRITTEN, -1, i, first << m->info->shift, -1, -1), 1,
                     (int[]){missing});
  }
}

static void finish(EmuRun* run) {
  drop_explained(run->request);
  int faults = 0;
  for (int i = 0; i < run->request->fault_count; ++i)
    faults += run->request->faults[i].kind != SAME_VALUE;
  if (run->code == FAILED && !faults) run->code = 0;
  if (run->checked && run->code != DEADLOCKED && (!faults || run->request->all)) check_outputs(run);
  if (!run->request->all) keep_first(run->request);
}

/* By which a walk over all blocks goes from one to the next: it shares no factor with them. */
static long long any_step(EmuRun* run, long long blocks) {
  for (;;) {
    const long long step = 1 + (long long)(next_random(run) % (u64)blocks);
    long long a = blocks, b = step;
    while (b) {
      const long long rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) return step;
  }
}

static void run_blocks(EmuRun* run) {
  const EmuKernel* kernel = run->kernel;
  long long blocks = 1;
  for (int axis = 0; axis < kernel->grid_axes; ++axis) blocks *= kernel->grid[axis];
  blocks /= run->cluster;
  const int order = run->request->order;
  const long long first = order == BACKWARD ? blocks - 1 : 0;
  const long long shuffled = order == SHUFFLED && blocks > 1 ? any_step(run, blocks) : 1;
  const long long step = order == BACKWARD ? blocks - 1 : shuffled;
  for (long long i = 0; i < blocks && !run->stopped && (!run->code || run->request->all); ++i) {
    start_block(run, (int)((first + i * step) % blocks));
    run_block(run);
    for (int w = 0; w < run->warps; ++w) end_warp(run->warp[w]);
    if (run->fencing) end_fencing(run);
    drop_explained(run->request);
    if (run->code == FAILED && !run->request->fault_count) run->code = 0;
  }
  finish(run);
}

/* ---- the launch */
static int make_run(EmuRun* run, const EmuKernel* kernel, void** args) {
  run->kernel = kernel;
  run->checked = kernel->checked;
  run->cluster = kernel->cluster ? kernel->cluster : 1;
  run->warps = run->cluster * ((kernel->threads + EMU_LANES - 1) / EMU_LANES);
  run->barrier_count = run->cluster > 1 ? MOST_BARRIERS : MOST_NAMED;
  const size_t bytes = (size_t)kernel->shared_bytes;
  if (run->cluster > 1) run->parts = malloc((size_t)run->cluster * bytes + 1);
  if (run->cluster > 1 && !run->parts) return 0;
  for (int rank = 0; rank < run->cluster; ++rank) {
    EmuBlock* block = &run->blocks[rank];
    block->args = args;
    block->run = run;
    block->cluster = run->parts;
    if (posix_memalign((void**)&block->shared, 1024, bytes + 1)) return 0;
  }
  run->states = calloc((size_t)run->warps, (size_t)kernel->state_bytes);
  run->mbarriers = calloc((size_t)mbarriers_of(run) + 1, sizeof(Mbarrier));
  if (!run->states || !run->mbarriers) return 0;
  for (int w = 0; w < run->warps; ++w) {
    run->warp[w] = (EmuWarp*)(run->states + w * kernel->state_bytes);
    if (kernel->engines) run->warp[w]->groups = calloc(1, sizeof(EmuGroups));
    if (kernel->alone) run->views[w] = calloc(EMU_LANES, sizeof(EmuView));
  }
  if (!make_memories(run, args)) return 0;
  if (run->checked) make_clocks(run);
  if (run->checked && kernel->fences) make_fencing(run);
  make_queues(run);
  return 1;
}

static void free_run(EmuRun* run) {
  for (int i = 0; run->mbarriers && i < mbarriers_of(run); ++i) {
    free(run->mbarriers[i].passed);
    free(run->mbarriers[i].arrivals);
  }
  for (int w = 0; w < run->warps && run->warp[w]; ++w) free(run->warp[w]->groups);
  for (int w = 0; w < run->warps; ++w) free(run->views[w]);
  free_queues(run);
  free_fencing(run);
  if (run->memories) free_memories(run);
  forget_accesses(&run->shared_accesses);
  forget_accesses(&run->global_accesses);
  forget_accesses(&run->uninitialised);
  for (int rank = 0; rank < run->cluster; ++rank) free(run->blocks[rank].shared);
  free(run->parts);
  free(run->states);
  free(run->mbarriers);
  free(run->clocks);
  free(run->elected);
  free(run->elects);
  free(run);
}

/* args: the parameters' addresses, then a Request or NULL. */
int emu_launch(const EmuKernel* kernel, void** args) {
  Request usual = {.order = kernel->order, .seed = (unsigned)kernel->seed};
  Request* request = args[kernel->parameters];
  EmuRun* run = calloc(1, sizeof *run);
  int code = NO_MEMORY;
  if (run) {
    run->request = request ? request : &usual;
    seed_random(run,
                run->request->order == SHUFFLED ? run->request->seed : run->request->engine_seed);
    if (make_run(run, kernel, args)) {
      run_blocks(run);
      code = run->code;
    }
    free_run(run);
  }
  if (!request) emu_forget(&usual);
  return code;
}

void emu_forget(void* told) {
  Request* request = told;
  free(request->faults);
  free(request->events);
  request->faults = NULL;
  request->events = NULL;
  request->fault_count = request->fault_room = 0;
  request->event_count = request->event_room = 0;
}
