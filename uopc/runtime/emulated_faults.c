/* Faults as they are found, and the tables behind them. */
#include "emulated_runtime.h"

enum { FIRST_ROOM = 16 };

Fault fault_at(const EmuRun* run, int kind, int place, int memory, long long offset, int warp,
               int lane) {
  Fault f = {
      .kind = kind, .place = place, .memory = memory, .offset = offset, .warp = warp, .lane = lane};
  f.block = run->number;
  f.moment = run->request->event_count;
  f.other_place = f.other_block = f.other_warp = f.other_lane = -1;
  return f;
}

static int tells_apart_by_detail(int kind) {
  return kind == MBARRIER || kind == ACCUMULATOR || kind == COPY || kind == UNWAITED ||
         kind == DEADLOCK || kind == CLUSTER;
}

/* A fault is found with warps of a cluster numbered through, and copies of memories; it is told by
 * block and warp. */
static Fault by_block(const EmuRun* run, Fault f) {
  const int count = warps_of_block(run);
  f.memory = memory_number(run, f.memory);
  if (run->cluster == 1) return f;
  if (f.warp >= 0) {
    f.block += f.warp / count;
    f.warp %= count;
  }
  if (f.other_warp >= 0) {
    f.other_block += f.other_warp / count;
    f.other_warp %= count;
  }
  return f;
}

static int is_known(const Request* request, const Fault* new) {
  for (int i = 0; i < request->fault_count; ++i) {
    const Fault* f = &request->faults[i];
    if (f->kind != new->kind || f->place != new->place || f->memory != new->memory ||
        f->other_place != new->other_place)
      continue;
    if (tells_apart_by_detail(f->kind) && f->detail[0] != new->detail[0]) continue;
    if (f->kind != DEADLOCK || (f->block == new->block && f->warp == new->warp)) return 1;
  }
  return 0;
}

/* Keeps a fault, unless one of its kind is known between the same places and in the same memory. */
Fault* report(EmuRun* run, Fault new) {
  Request* request = run->request;
  const int stops = new.kind != UNINITIALISED && new.kind != UNWAITED && new.kind != SAME_VALUE;
  if (run->stopped && !request->all && new.kind != DEADLOCK)
    return NULL; /* up to its next wait a warp goes on */
  if (stops && !request->all) run->stopped = 1;
  if (new.kind != SAME_VALUE) run->code = FAILED;
  new = by_block(run, new);
  if (is_known(request, &new)) return NULL;
  if (request->fault_count == request->fault_room) {
    request->fault_room = request->fault_room ? 2 * request->fault_room : FIRST_ROOM;
    request->faults = realloc(request->faults, sizeof(Fault) * (size_t)request->fault_room);
  }
  request->faults[request->fault_count] = new;
  return &request->faults[request->fault_count++];
}

void report_details(EmuRun* run, Fault new, int count, const int* details) {
  new.details = count;
  for (int i = 0; i < count; ++i) new.detail[i] = details[i];
  report(run, new);
}

/* Who did what a stamp says. */
static int agent_of(const EmuRun* run, EmuStamp stamp) {
  const int slot = EMU_SLOT(stamp);
  if (slot >= run->mbarrier_slots) return BY_MBARRIER;
  if (slot >= run->mma_slots) return BY_WGMMA;
  return (const int[]){
      BY_THREAD, BY_THREAD, BY_CP_ASYNC, BY_CP_ASYNC, BY_BULK, BY_BULK}[slot / run->warps];
}

static int warp_of(const EmuRun* run, EmuStamp stamp) {
  const int slot = EMU_SLOT(stamp);
  if (slot >= run->mbarrier_slots) return -1;
  return slot >= run->mma_slots ? 4 * (slot - run->mma_slots) : slot % run->warps;
}

/* An access at a granule is not ordered with another one, or not fenced from it. */
void report_pair(EmuRun* run, int kind, const Observer* by, const EmuMemory* m, long long granule,
                 Access other) {
  Fault f = fault_at(run, kind, by->place, m->number, granule << m->info->shift, by->warp,
                     by->lane < 0 ? EMU_LANES : by->lane);
  f.other_place = EMU_PLACE(other.stamp);
  f.other_block = other.block ? ((int)other.block - 1) * run->cluster : run->number;
  f.other_warp = warp_of(run, other.stamp);
  f.other_lane = other.stamp & EMU_SEVERAL ? EMU_LANES : EMU_LANE(other.stamp);
  f.other_agent = other.what == AN_ATOMIC ? BY_ATOMIC : agent_of(run, other.stamp);
  if (f.other_agent == BY_MBARRIER && m->info->space == EMU_CLUSTER) f.other_agent = BY_SENDER;
  f.details = 1;
  f.detail[0] = by->agent;
  if (kind == RACE || kind == PROXY_FENCE) race_explains(run, m->number, granule);
  report(run, f);
}

/* ---- tables of granules */
static u64 key_of(int memory, long long granule) { return ((u64)memory + 1) << 48 | (u64)granule; }

static AccessList* find(AccessTable* table, u64 key) {
  u64 at = (key ^ key >> 29) * 0x9e3779b97f4a7c15ull >> 20;
  for (at &= (u64)table->size - 1; table->lists[at].key && table->lists[at].key != key;)
    at = (at + 1) & ((u64)table->size - 1);
  return &table->lists[at];
}

static void grow(AccessTable* table) {
  AccessTable larger = {.size = table->size ? 2 * table->size : 1024};
  larger.lists = calloc((size_t)larger.size, sizeof(AccessList));
  for (int i = 0; i < table->size; ++i)
    if (table->lists[i].key) *find(&larger, table->lists[i].key) = table->lists[i];
  larger.used = table->used;
  free(table->lists);
  *table = larger;
}

/* The accesses of a granule; NULL where there are none and none are made. */
AccessList* accesses_of(AccessTable* table, int memory, long long granule, int make) {
  if (make && 2 * table->used >= table->size) grow(table);
  if (!table->size) return NULL;
  AccessList* list = find(table, key_of(memory, granule));
  if (list->key) return list;
  if (!make) return NULL;
  list->key = key_of(memory, granule);
  ++table->used;
  return list;
}

void remember_access(AccessList* list, Access access) {
  if (list->count == list->room) {
    list->room = list->room ? 2 * list->room : 2;
    list->accesses = realloc(list->accesses, sizeof(Access) * (size_t)list->room);
  }
  list->accesses[list->count++] = access;
}

void forget_accesses(AccessTable* table) {
  for (int i = 0; i < table->size; ++i) free(table->lists[i].accesses);
  free(table->lists);
  memset(table, 0, sizeof *table);
}

/* ---- reads of what nobody has written */
static Fault* found_by(Request* request, int place, int memory) {
  for (int i = 0; i < request->fault_count; ++i) {
    Fault* f = &request->faults[i];
    if (f->kind == UNINITIALISED && f->place == place && f->memory == memory) return f;
  }
  return NULL;
}

/* It stops nothing before the block's end: if a write to the granule follows that is not ordered
 * after the read, the fault is that race, in whatever order the two came. */
void uninitialised(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule) {
  AccessList* list = accesses_of(&run->uninitialised, m->number, granule, 1);
  for (int i = 0; i < list->count; ++i)
    if ((int)list->accesses[i].block == by->place) return;
  const int lane = by->lane < 0 ? EMU_LANES : by->lane;
  const Fault new =
      fault_at(run, UNINITIALISED, by->place, m->number, granule << m->info->shift, by->warp, lane);
  Fault* f = found_by(run->request, by->place, memory_number(run, m->number));
  if (!f)
    f = report(run, new);
  else if (!f->unexplained)
    *f = by_block(run, new);
  else if (f->block / run->cluster != run->number / run->cluster)
    return;
  if (!f) return;
  run->code = FAILED;
  ++f->unexplained;
  remember_access(list, (Access){.block = (unsigned)by->place});
}

/* A race at a granule: reads of it that found nothing are part of it. */
void race_explains(EmuRun* run, int memory, long long granule) {
  AccessList* list = accesses_of(&run->uninitialised, memory, granule, 0);
  for (int i = 0; list && i < list->count; ++i) {
    Fault* f =
        found_by(run->request, (int)list->accesses[i].block, memory_number(run, memory));
    if (f && f->unexplained) --f->unexplained;
  }
  if (list) list->count = 0;
}

static int is_race_in(const Request* request, int memory) {
  for (int i = 0; i < request->fault_count; ++i)
    if (request->faults[i].kind == RACE && (memory < 0 || request->faults[i].memory == memory))
      return 1;
  return 0;
}

/* Is a fault only the shadow of a race?  A read of nothing is one where all that it read was
 * written later; and, if only the first fault is asked for, where its memory has a race at all: the
 * run has stopped before the write that explains it.  Then work that nobody waited for is one too.
 */
static int is_explained(const Request* request, const Fault* f) {
  if (f->kind == UNINITIALISED)
    return !f->unexplained || (!request->all && is_race_in(request, f->memory));
  return f->kind == UNWAITED && !request->all && is_race_in(request, -1);
}

void drop_explained(Request* request) {
  int kept = 0;
  for (int i = 0; i < request->fault_count; ++i)
    if (!is_explained(request, &request->faults[i])) request->faults[kept++] = request->faults[i];
  request->fault_count = kept;
}

/* Faults of order come before reads of nothing that the run has not gone on to explain. */
static int comes_first(int kind) { return kind == RACE || kind == PROXY_FENCE || kind == MBARRIER; }

/* The first fault alone, beside warnings; of a deadlock, all warps that wait. */
void keep_first(Request* request) {
  int first = -1, kept = 0;
  for (int i = 0; i < request->fault_count; ++i) {
    const int kind = request->faults[i].kind;
    if (kind == SAME_VALUE) continue;
    if (first < 0 || (request->faults[first].kind == UNINITIALISED && comes_first(kind))) first = i;
  }
  for (int i = 0; i < request->fault_count; ++i) {
    const int kind = request->faults[i].kind;
    const int also =
        kind == SAME_VALUE || (kind == DEADLOCK && request->faults[first].kind == DEADLOCK);
    if (i == first || also) request->faults[kept++] = request->faults[i];
  }
  request->fault_count = kept;
}
