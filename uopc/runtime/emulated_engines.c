/* Asynchronous work: cp.async, bulk copies, wgmma.  Each operation is an agent of its own that
 * knows what its issuer knew; queues keep the order of one issuer, and nothing else is ordered. */
#include "emulated_runtime.h"

/* ---- queues: for cp.asyncs, bulk stores and MMAs of each warp, for bulk loads of each mbarrier */
enum { QUEUE_COPIES, QUEUE_STORES, QUEUE_MMAS, QUEUES_OF_WARPS };

void make_queues(EmuRun* run) {
  run->queue_count = QUEUES_OF_WARPS * run->warps + mbarriers_of(run);
  run->queues = calloc((size_t)run->queue_count, sizeof(Queue));
  run->busy = calloc((size_t)run->queue_count, sizeof(int));
}

void free_queues(EmuRun* run) {
  for (int i = 0; run->queues && i < run->queue_count; ++i) {
    Queue* queue = &run->queues[i];
    for (int k = queue->head; k < queue->count; ++k)
      if (queue->operations[k].snapshot) drop_snapshot(queue->operations[k].snapshot);
    free(queue->operations);
  }
  free(run->queues);
  free(run->busy);
}

static int queue_of(const EmuRun* run, const Operation* op) {
  switch (op->agent) {
    case BY_CP_ASYNC: return QUEUE_COPIES * run->warps + op->warp;
    case BY_BULK: return QUEUE_STORES * run->warps + op->warp;
    case BY_WGMMA: return QUEUE_MMAS * run->warps + op->warp;
    default: return QUEUES_OF_WARPS * run->warps + op->barrier;
  }
}

static void execute(EmuRun* run, Operation* op);

/* Does an operation at once, or keeps it for later.  lane -1: the whole warp issues it. */
void issue(EmuWarp* W, Operation op) {
  EmuRun* run = run_of(W);
  op.warp = W->warp;
  if (run->checked) {
    op.observer = lane_observer(W, op.lane, op.place);
    op.observer.agent = op.agent;
    tick(W);
  }
  if (run->request->engine == EARLY) {
    execute(run, &op);
    return;
  }
  if (run->checked) {
    op.snapshot = snapshot_of(W, op.lane);
    op.observer.known = op.snapshot->known;
  }
  Queue* queue = &run->queues[queue_of(run, &op)];
  if (queue->head == queue->count) {
    queue->head = queue->count = 0;
    run->busy[run->busy_count++] = queue_of(run, &op);
  }
  if (queue->count == queue->room) {
    queue->room = queue->room ? 2 * queue->room : 64;
    queue->operations = realloc(queue->operations, sizeof(Operation) * (size_t)queue->room);
  }
  queue->operations[queue->count++] = op;
  ++run->queued;
}

/* One operation of one queue. */
void step_engine(EmuRun* run, unsigned pick) {
  const unsigned at = pick % (unsigned)run->busy_count;
  Queue* queue = &run->queues[run->busy[at]];
  Operation op = queue->operations[queue->head++];
  if (queue->head == queue->count) run->busy[at] = run->busy[--run->busy_count];
  --run->queued;
  ++run->moves;
  execute(run, &op);
  if (op.snapshot) drop_snapshot(op.snapshot);
}

/* ---- groups */
static Groups* groups_of(EmuWarp* W, int engine) {
  return engine == EMU_CP_ASYNC ? &W->groups->copies : &W->groups->bulk;
}

static unsigned start_in_group(Groups* groups, int lane) {
  ++groups->pending[lane];
  return groups->last[lane] = groups->commits + 1;
}

void emu_commit(EmuWarp* W, unsigned mask, int place, int engine) {
  EmuGroups* all = W->groups;
  (void)place;
  if (engine == EMU_WGMMA) {
    all->mma_commit[all->mma_commits++ % MOST_GROUPS] = all->mmas;
    all->mma_open = 0;
    return;
  }
  Groups* groups = groups_of(W, engine);
  groups->masks[++groups->commits % MOST_GROUPS] = mask;
}

/* The newest group that a lane waits for if it lets `pending` go on; 0: none. */
static unsigned awaited(const Groups* groups, int lane, int pending) {
  const unsigned oldest = groups->commits > MOST_GROUPS ? groups->commits - MOST_GROUPS : 0;
  for (unsigned n = groups->commits; n > oldest; --n)
    if (groups->masks[n % MOST_GROUPS] >> lane & 1 && pending-- == 0) return n;
  return oldest;
}

void emu_wait_group(EmuWarp* W, unsigned mask, int place, int engine, int pending, int read) {
  W->waiting = (EmuWaiting){.what = WAITS_FOR_GROUP,
                            .place = place,
                            .number = engine,
                            .wanted = pending,
                            .generation = read,
                            .mask = mask};
}

static int mmas_are_done(EmuWarp* W, int pending) {
  EmuRun* run = run_of(W);
  const int first = W->warp & ~3;
  const unsigned commits = W->groups->mma_commits;
  if (commits <= (unsigned)pending) return 1;
  const unsigned group = commits - (unsigned)pending;
  unsigned number = 0;
  for (int w = first; w < first + 4 && w < run->warps; ++w) {
    const EmuGroups* other = run->warp[w]->groups;
    if (other->mma_commits < group) return 0;
    number = other->mma_commit[(group - 1) % MOST_GROUPS];
    if (other->mmas_done < number) return 0;
  }
  W->groups->mma_waited = group;
  if (!pending && !W->groups->mma_open) W->accumulators_busy = 0;
  if (!run->checked) return 1;
  unsigned* clocks = calloc((size_t)run->slots, sizeof(unsigned));
  clocks[run->mma_slots + W->warp / 4] = number;
  learn(W, clocks, W->full);
  free(clocks);
  return 1;
}

static int has_finished(const EmuRun* run, const EmuWarp* W, int engine, int lane, unsigned group) {
  const Queue* queue =
      &run->queues[(engine == EMU_CP_ASYNC ? QUEUE_COPIES : QUEUE_STORES) * run->warps + W->warp];
  for (int i = queue->head; i < queue->count; ++i)
    if (queue->operations[i].lane == lane && queue->operations[i].number <= group) return 0;
  return 1;
}

/* What a warp waits for in a group; if it is done, its lanes know so. */
int groups_are_done(EmuWarp* W) {
  EmuRun* run = run_of(W);
  const EmuWaiting* waiting = &W->waiting;
  const int engine = waiting->number;
  if (engine == EMU_WGMMA) return mmas_are_done(W, waiting->wanted);
  const Groups* groups = groups_of(W, engine);
  for (int l = 0; run->queued && l < W->lanes; ++l)
    if (waiting->mask >> l & 1 &&
        !has_finished(run, W, engine, l, awaited(groups, l, waiting->wanted)))
      return 0;
  for (int l = 0; l < W->lanes; ++l) {
    if (!(waiting->mask >> l & 1)) continue;
    const unsigned group = awaited(groups, l, waiting->wanted);
    unsigned (*clocks)[EMU_LANES] = W->groups->clocks;
    const int kind = engine == EMU_CP_ASYNC ? OF_COPIES : OF_BULK_READ;
    if (clocks[kind][l] < group) clocks[kind][l] = group;
    if (engine == EMU_BULK && !waiting->generation && clocks[OF_BULK_WRITE][l] < group)
      clocks[OF_BULK_WRITE][l] = group;
  }
  return 1;
}

static void not_waited_for(EmuWarp* W, int agent, int lane) {
  report_details(run_of(W), fault_at(run_of(W), UNWAITED, -1, -1, 0, W->warp, lane), 1,
                 (int[]){agent});
}

/* At a warp's end: done is not enough, since that differs from run to run. */
void all_work_was_waited_for(EmuWarp* W) {
  const EmuGroups* groups = W->groups;
  for (int l = 0; l < W->lanes; ++l) {
    if (groups->copies.last[l] > groups->clocks[OF_COPIES][l]) not_waited_for(W, BY_CP_ASYNC, l);
    if (groups->bulk.last[l] > groups->clocks[OF_BULK_READ][l]) not_waited_for(W, BY_BULK, l);
  }
  if (groups->mma_open || W->accumulators_busy) not_waited_for(W, BY_WGMMA, EMU_LANES);
}

/* At a block's end, bulk loads: somebody has waited for the phase that their bytes belong to. */
void all_loads_were_waited_for(EmuRun* run) {
  for (int i = 0; i < mbarriers_of(run); ++i) {
    const Mbarrier* barrier = &run->mbarriers[i];
    if (!barrier->initialised || barrier->loading <= barrier->awaited) continue;
    const EmuStamp load = barrier->load;
    report_details(run,
                   fault_at(run, UNWAITED, EMU_PLACE(load), -1, 0, EMU_SLOT(load), EMU_LANE(load)),
                   1, (int[]){BY_MBARRIER});
  }
}

/* ---- fences */
void emu_fence(EmuWarp* W, unsigned mask, int place, int fence) {
  EmuRun* run = run_of(W);
  (void)place;
  if (!run->checked) return;
  if (fence == EMU_FENCE_BLOCK || fence == EMU_FENCE_DEVICE) {
    if (run->fencing) fence_memory(W, mask, fence == EMU_FENCE_DEVICE);
  } else if (fence == EMU_FENCE_WGMMA) {
    W->accumulators_used = 0;
  } else if (fence == EMU_FENCE_MBARRIER) {
    fence_initialised(W, mask);
  } else if (fence == EMU_FENCE_PROXY) {
    unsigned (*clocks)[EMU_LANES] = W->groups->clocks;
    for (int l = 0; l < W->lanes; ++l) {
      if (!(mask >> l & 1)) continue;
      clocks[OF_FENCED][l] = W->clock;
      clocks[OF_COPIES_FENCED][l] = clocks[OF_COPIES][l];
    }
    tick(W);
  }
}

/* ---- a range of bytes that an engine reads or writes */
static void read_range(EmuRun* run, const Observer* by, EmuMemory* m, long long at, long long bytes,
                       EmuStamp stamp, int reader) {
  if (!m->writes || bytes <= 0) return;
  for (long long g = at >> m->info->shift; g <= (at + bytes - 1) >> m->info->shift; ++g)
    read_by(run, by, m, g, stamp, reader);
}

/* value: the bytes to come, NULL where they are not known. */
static void write_range(EmuRun* run, const Observer* by, EmuMemory* m, long long at,
                        long long bytes, EmuStamp stamp, const unsigned char* value) {
  if (!m->writes || bytes <= 0) return;
  const int size = 1 << m->info->shift;
  for (long long g = at >> m->info->shift; g <= (at + bytes - 1) >> m->info->shift; ++g)
    write_by(run, by, m, g, stamp,
             value && (g << m->info->shift) >= at ? value + ((g << m->info->shift) - at) : NULL,
             size);
}

static EmuStamp stamp_of(const Operation* op, int slot, unsigned number) {
  const int lane = op->lane < 0 ? 0 : op->lane;
  return (EmuStamp)number << 32 | (EmuStamp)op->place << EMU_PLACE_SHIFT |
         (EmuStamp)lane << EMU_LANE_SHIFT | (EmuStamp)slot;
}

/* ---- cp.async */
void emu_copy(EmuWarp* W, int lane, int place, int to, long long to_at, int from, long long from_at,
              int width, int gate) {
  EmuRun* run = run_of(W);
  Operation op = {.agent = BY_CP_ASYNC,
                  .place = place,
                  .lane = lane,
                  .to = to,
                  .from = from,
                  .width = width,
                  .gate = gate,
                  .to_at = to_at,
                  .from_at = from_at};
  const Observer by = lane_observer(W, lane, place);
  if (run->checked && (!inside(run, &by, &run->memories[to], to_at, width, width) ||
                       (gate && !inside(run, &by, &run->memories[from], from_at, width, width))))
    return;
  op.number = start_in_group(&W->groups->copies, lane);
  issue(W, op);
}

static void execute_copy(EmuRun* run, Operation* op) {
  static const unsigned char zeros[16];
  EmuMemory *to = &run->memories[op->to], *from = &run->memories[op->from];
  const unsigned char* value = op->gate ? from->data + op->from_at : zeros;
  if (run->checked) {
    const EmuStamp stamp = stamp_of(op, slot_of(run, OF_COPIES, op->warp), op->number);
    if (op->gate) read_range(run, &op->observer, from, op->from_at, op->width, stamp, op->warp);
    write_range(run, &op->observer, to, op->to_at, op->width, stamp, value);
  }
  memcpy(to->data + op->to_at, value, (size_t)op->width);
}

/* ---- boxes of tensor maps */
typedef struct {
  int rank, row_bytes, rows;
  int item_bytes;
} Box;

static Box box_of(const EmuRun* run, const EmuTensorMap* map) {
  Box box = {.rank = map->rank, .rows = 1};
  box.item_bytes = run->memories[map->memory].info->item_bytes;
  box.row_bytes = map->box[map->rank - 1] * box.item_bytes;
  for (int i = 0; i < map->rank - 1; ++i) box.rows *= map->box[i];
  return box;
}

/* A row of a box: where it lies in GLOBAL memory, and which of its bytes are inside the tensor. */
typedef struct {
  long long at;
  int begin, end;
} Row;

static Row row_of(const EmuTensorMap* map, const Box* box, const long long* coordinates,
                  int number) {
  const int inner = map->rank - 1;
  Row row = {.at = coordinates[inner] * box->item_bytes};
  int is_inside = 1;
  for (int i = inner - 1; i >= 0; --i) {
    const long long x = coordinates[i] + number % map->box[i];
    number /= map->box[i];
    is_inside &= x >= 0 && x < map->shape[i];
    row.at += x * map->strides[i];
  }
  const long long first = coordinates[inner], last = first + map->box[inner];
  const long long begin = first < 0 ? 0 : first,
                  end = last > map->shape[inner] ? map->shape[inner] : last;
  if (is_inside && begin < end) {
    row.begin = (int)(begin - first) * box->item_bytes;
    row.end = (int)(end - first) * box->item_bytes;
  }
  return row;
}

/* The pattern is one of absolute addresses: 16-byte pieces trade places within 8 rows. */
static long long swizzled(long long address, int swizzle) {
  return address ^ ((address >> 7 & (swizzle / 16 - 1)) << 4);
}

static unsigned char* piece(EmuRun* run, const EmuMemory* tile, long long at, int swizzle) {
  const long long address = tile->info->at + at;
  return run->blocks->shared + (swizzle ? swizzled(address, swizzle) : address);
}

enum { PIECE = 16, TILE_ALIGNMENT = 128 };

/* Rules of a bulk copy.  Says whether it may be done. */
static int may_copy_box(EmuWarp* W, unsigned mask, int place, const EmuTensorMap* map, int memory,
                        long long at, const long long* coordinates) {
  EmuRun* run = run_of(W);
  const EmuMemory* tile = &run->memories[memory];
  const Box box = box_of(run, map);
  const int lane = emu_first(mask), align = map->swizzle ? 8 * map->swizzle : TILE_ALIGNMENT;
  const long long inner = coordinates[map->rank - 1] * box.item_bytes;
  if (run->checked && mask & (mask - 1))
    report_details(run, fault_at(run, COPY, place, memory, at, W->warp, lane), 2,
                   (int[]){COPY_SEVERAL_LANES, (int)mask});
  if ((tile->info->at + at) % align) { /* a pattern that begins elsewhere would leave the tile */
    if (run->checked)
      report_details(run, fault_at(run, COPY, place, memory, at, W->warp, lane), 2,
                     (int[]){COPY_DESTINATION, align});
    return 0;
  }
  if (run->checked && inner % PIECE)
    report_details(run, fault_at(run, COPY, place, map->memory, 0, W->warp, lane), 2,
                   (int[]){COPY_COORDINATE, (int)inner});
  const Observer by = {.warp = W->warp, .lane = lane, .place = place};
  if (run->checked) return inside(run, &by, tile, at, (long long)box.rows * box.row_bytes, 1);
  return at >= 0 && at + (long long)box.rows * box.row_bytes <= tile->info->bytes;
}

void emu_bulk_load(EmuWarp* W, unsigned mask, int place, const EmuTensorMap* map, int to,
                   long long to_at, int barriers, long long barrier, const long long* coordinates) {
  EmuRun* run = run_of(W);
  if (!may_copy_box(W, mask, place, map, to, to_at, coordinates)) return;
  const Mbarrier* counts = usable_mbarrier(W, mask, place, barriers, barrier);
  if (!counts) return;
  Operation op = {.agent = BY_MBARRIER,
                  .place = place,
                  .lane = emu_first(mask),
                  .map = map,
                  .to = to,
                  .to_at = to_at,
                  .barrier = (int)(counts - run->mbarriers)};
  memcpy(op.coordinates, coordinates, sizeof(long long) * (size_t)map->rank);
  issue(W, op);
}

static void execute_load(EmuRun* run, Operation* op) {
  EmuMemory *tile = &run->memories[op->to], *from = &run->memories[op->map->memory];
  Mbarrier* barrier = &run->mbarriers[op->barrier];
  const Box box = box_of(run, op->map);
  const long long bytes = (long long)box.rows * box.row_bytes;
  const EmuStamp stamp =
      run->checked ? stamp_of(op, run->mbarrier_slots + op->barrier, barrier->phase + 1) : 0;
  for (int r = 0; r < box.rows; ++r) {
    const Row row = row_of(op->map, &box, op->coordinates, r);
    if (run->checked)
      read_range(run, &op->observer, from, row.at + row.begin, row.end - row.begin, stamp, 0);
    for (int b = 0; b < box.row_bytes; b += PIECE) {
      unsigned char value[PIECE] = {0};
      for (int i = 0; i < PIECE; ++i)
        if (b + i >= row.begin && b + i < row.end) value[i] = from->data[row.at + b + i];
      unsigned char* to =
          piece(run, tile, op->to_at + (long long)r * box.row_bytes + b, op->map->swizzle);
      if (run->checked) write_range(run, &op->observer, tile, to - tile->data, PIECE, stamp, value);
      memcpy(to, value, PIECE);
    }
  }
  if (run->checked) {
    join(run, barrier->gathered, op->observer.known);
    barrier->loading = barrier->phase + 1;
    barrier->load = stamp_of(op, op->warp, 1);
  }
  barrier->bytes -= bytes;
  complete_phase(run, barrier);
}

void emu_bulk_store(EmuWarp* W, unsigned mask, int place, const EmuTensorMap* map, int from,
                    long long from_at, const long long* coordinates) {
  if (!may_copy_box(W, mask, place, map, from, from_at, coordinates)) return;
  Operation op = {.agent = BY_BULK,
                  .place = place,
                  .lane = emu_first(mask),
                  .map = map,
                  .from = from,
                  .from_at = from_at};
  memcpy(op.coordinates, coordinates, sizeof(long long) * (size_t)map->rank);
  op.number = start_in_group(&W->groups->bulk, op.lane);
  issue(W, op);
}

static void execute_store(EmuRun* run, Operation* op) {
  EmuMemory *tile = &run->memories[op->from], *to = &run->memories[op->map->memory];
  const Box box = box_of(run, op->map);
  if (run->checked) {
    const EmuStamp stamp = stamp_of(op, slot_of(run, OF_BULK_READ, op->warp), op->number);
    read_range(run, &op->observer, tile, op->from_at, (long long)box.rows * box.row_bytes, stamp,
               tile->info->bulk_reader + op->warp);
  }
  unsigned char line[256 * 16];
  for (int r = 0; r < box.rows; ++r) {
    const Row row = row_of(op->map, &box, op->coordinates, r);
    for (int b = 0; b < box.row_bytes; b += PIECE)
      memcpy(line + b,
             piece(run, tile, op->from_at + (long long)r * box.row_bytes + b, op->map->swizzle),
             PIECE);
    if (run->checked) {
      const EmuStamp stamp = stamp_of(op, slot_of(run, OF_BULK_WRITE, op->warp), op->number);
      write_range(run, &op->observer, to, row.at + row.begin, row.end - row.begin, stamp,
                  line + row.begin);
    }
    if (row.begin < row.end)
      memcpy(to->data + row.at + row.begin, line + row.begin, (size_t)(row.end - row.begin));
  }
}

/* ---- what an engine does when its time has come */
static void execute(EmuRun* run, Operation* op) {
  switch (op->agent) {
    case BY_CP_ASYNC: execute_copy(run, op); break;
    case BY_BULK: execute_store(run, op); break;
    case BY_WGMMA: execute_mma(run, op); break;
    default: execute_load(run, op);
  }
}
