/* Accesses that are not simply right: what follows the quick tests of emulated.h. */
#include "emulated_runtime.h"

static AccessTable* table_of(EmuRun* run, const EmuMemory* m) {
  return m->info->space == EMU_GLOBAL ? &run->global_accesses : &run->shared_accesses;
}

static int is_foreign(const EmuRun* run, Access access) {
  return access.block && access.block != run->blocks->writer;
}

/* The clocks of one block say nothing of another one: between blocks, and of atomics, fences do. */
static int before_by_fences(EmuRun* run, const Observer* by, const EmuMemory* m,
                            long long granule, Access access) {
  if (!run->fencing || (!is_foreign(run, access) && access.what != AN_ATOMIC)) return 0;
  const AccessList* list = accesses_of(table_of(run, m), m->number, granule, 0);
  return handed_over(run, by, list ? list->location : 0, access);
}

static int before(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                  Access access) {
  if (!access.stamp) return 1;
  if (!is_foreign(run, access) && ordered(run, by, access.stamp)) return 1;
  return before_by_fences(run, by, m, granule, access);
}

static Access last_write(const EmuMemory* m, long long granule) {
  const unsigned block = m->write_blocks ? m->write_blocks[granule] : 0;
  return (Access){m->writes[granule], block, A_WRITE, 0, 0};
}

static unsigned block_for(const EmuRun* run, const EmuMemory* m) {
  return m->info->space == EMU_GLOBAL ? run->blocks->writer : 0;
}

/* ---- bounds, alignment */
void* emu_outside(EmuWarp* W, const EmuMemory* m, long long at, int width, EmuStamp me, int write) {
  EmuRun* run = run_of(W);
  const int inside = at >= 0 && at + width <= m->info->bytes;
  report(run, fault_at(run, inside ? MISALIGNED : BOUNDS, EMU_PLACE(me), m->number, at, W->warp,
                       EMU_LANE(me)));
  if (write) return run->dropped;
  memset(run->poison, 0xff, sizeof run->poison);
  return run->poison;
}

/* How long the segment is goes with the fault: -1 where there is no such segment. */
void emu_outside_segment(EmuWarp* W, const EmuMemory* m, long long which, long long at,
                         EmuStamp me) {
  EmuRun* run = run_of(W);
  const long long length = m->info->segment, item = m->info->item_bytes;
  const long long count = m->info->bytes / (length * item);
  const int has = which < 0 || which >= count ? -1 : (int)m->table[count + which];
  const long long offset = item * (which * length + at);
  report_details(run,
                 fault_at(run, BOUNDS, EMU_PLACE(me), m->number, offset, W->warp, EMU_LANE(me)), 3,
                 (int[]){(int)which, (int)at, has});
}

/* The same for what an engine or a whole warp accesses.  Says whether it may. */
int inside(EmuRun* run, const Observer* by, const EmuMemory* m, long long at, long long width,
           int align) {
  const int is_inside = at >= 0 && at + width <= m->info->bytes;
  if (is_inside && !(at & (align - 1))) return 1;
  const int lane = by->lane < 0 ? EMU_LANES : by->lane;
  report(run,
         fault_at(run, is_inside ? MISALIGNED : BOUNDS, by->place, m->number, at, by->warp, lane));
  return 0;
}

/* ---- registers */
void emu_uninitialised_register(EmuWarp* W, int memory, long long at, EmuStamp me) {
  EmuRun* run = run_of(W);
  const EmuMemoryInfo* info = run->memories[memory].info;
  const long long offset = at * info->item_bytes;
  const int kind = offset < 0 || offset >= info->bytes ? BOUNDS : UNINITIALISED;
  Fault f = fault_at(run, kind, EMU_PLACE(me), memory, offset, W->warp, EMU_LANE(me));
  f.unexplained = 1;
  report(run, f);
}

void emu_registers(EmuWarp* W, unsigned mask, int place, int memory, unsigned char* set,
                   long stride, long long at, int count, int width, int write) {
  for (int l = 0; l < W->lanes; ++l)
    if (mask >> l & 1)
      emu_register(W, memory, set + l * stride, at, count, width, write,
                   emu_me(W, l) | (EmuStamp)place << EMU_PLACE_SHIFT);
}

/* ---- one read, one write of a granule by anybody */
static int same_bits(const EmuMemory* m, long long granule, const void* value, int width) {
  return value && !memcmp(m->data + (granule << m->info->shift), value, (size_t)width);
}

/* One access against another one that is not to be unordered with it. */
static void check_pair(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                       Access other, int asynchronous) {
  if (!before(run, by, m, granule, other))
    report_pair(run, RACE, by, m, granule, other);
  else if (asynchronous && !is_foreign(run, other) && !fenced(run, by, other.stamp))
    report_pair(run, PROXY_FENCE, by, m, granule, other);
}

/* Accesses that are kept one by one.  slot: of one warp's readers alone, -1: of all. */
static void check_list(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                       int slot, unsigned kinds, int asynchronous) {
  const AccessList* list = accesses_of(table_of(run, m), m->number, granule, 0);
  for (int i = 0; list && i < list->count; ++i) {
    const Access a = list->accesses[i];
    if (kinds >> a.what & 1 && (slot < 0 || EMU_SLOT(a.stamp) == slot))
      check_pair(run, by, m, granule, a, asynchronous);
  }
}
enum {
  READS = 1 << A_READ,
  ATOMICS = 1 << AN_ATOMIC,
  WRITES = 1 << A_WRITE,
  PAST_WRITES = 1 << A_PAST_WRITE
};

static EmuStamp several_writes(const EmuRun* run) {
  return ~0ull << 32 | (EmuStamp)run->several_writes;
}

static int has_several_writes(const EmuRun* run, const EmuMemory* m, long long granule) {
  return m->writes[granule] && EMU_SLOT(m->writes[granule]) == run->several_writes;
}

static void check_last_write(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                             int asynchronous) {
  const Access write = last_write(m, granule);
  if (!write.stamp) {
    if (!m->initialised) uninitialised(run, by, m, granule);
  } else if (has_several_writes(run, m, granule)) {
    check_list(run, by, m, granule, -1, WRITES, asynchronous);
  } else {
    check_pair(run, by, m, granule, write, asynchronous);
  }
}

static void check_readers(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                          int asynchronous) {
  for (int i = 0; m->reads && i < m->info->readers; ++i) {
    const EmuStamp r = m->reads[granule * m->info->readers + i];
    if (r & EMU_SEVERAL && m->info->exact) {
      check_list(run, by, m, granule, EMU_SLOT(r), READS, asynchronous);
    } else {
      check_pair(run, by, m, granule, (Access){r, 0, A_READ, 0, 0}, asynchronous);
    }
  }
}

/* Against one earlier write.  Says whether both stay, unordered, with equal bits. */
static int check_write_pair(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                            Access other, int same, int asynchronous) {
  const int unordered = !before(run, by, m, granule, other);
  if (!unordered || !same) {
    check_pair(run, by, m, granule, other, asynchronous);
    return 0;
  }
  report_pair(run, SAME_VALUE, by, m, granule, other);
  return 1;
}

static void check_readers_and_atomics(EmuRun* run, const Observer* by, const EmuMemory* m,
                                      long long granule, int asynchronous) {
  if (m->reads)
    check_readers(run, by, m, granule, asynchronous);
  else
    check_list(run, by, m, granule, -1, READS | ATOMICS, asynchronous);
}

/* Where fences order accesses, those before a write no longer count: what has released from the
 * granule's location is overwritten.  Elsewhere they stay: a write may come that is unordered both
 * with them and with this one, and whose bits are this one's. */
static void forget_list(EmuRun* run, const EmuMemory* m, long long granule, unsigned kinds) {
  AccessList* list = accesses_of(table_of(run, m), m->number, granule, 0);
  int kept = 0;
  for (int i = 0; list && i < list->count; ++i)
    if (!(kinds >> list->accesses[i].what & 1)) list->accesses[kept++] = list->accesses[i];
  if (!list) return;
  list->count = kept;
  list->location = 0;
}

/* An ordered write of other bits follows.  Who writes its bits too, unordered with it, may be
 * unordered with those before it as well, and then races with them.  One step back is enough: what
 * came before is ordered before them. */
static void remember_past(EmuRun* run, EmuMemory* m, long long granule, Access earlier,
                          int several) {
  if (m->past_writes) m->past_writes[granule] = several ? several_writes(run) : earlier.stamp;
  if (m->past_writes && !several) return;
  AccessList* list = accesses_of(table_of(run, m), m->number, granule, 1);
  int kept = 0;
  for (int i = 0; i < list->count; ++i) {
    Access a = list->accesses[i];
    if (a.what == A_PAST_WRITE) continue;
    if (a.what == A_WRITE) a.what = A_PAST_WRITE;
    list->accesses[kept++] = a;
  }
  list->count = kept;
  earlier.what = A_PAST_WRITE;
  if (!several) remember_access(list, earlier);
}

static void check_past(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule) {
  const EmuStamp past = m->past_writes ? m->past_writes[granule] : several_writes(run);
  if (past == several_writes(run))
    check_list(run, by, m, granule, -1, PAST_WRITES, 0);
  else
    check_pair(run, by, m, granule, (Access){past, 0, A_WRITE, 0, 0}, 0);
}

/* A write: all that is wrong with it, and from then on it is the last one, or one of several. */
static void write_granule(EmuRun* run, const Observer* by, EmuMemory* m, long long granule,
                          EmuStamp stamp, const void* value, int width, int asynchronous) {
  const Access earlier = last_write(m, granule);
  const int several = has_several_writes(run, m, granule);
  const int same = same_bits(m, granule, value, width), other_bits = value && !same;
  AccessList* list = several ? accesses_of(table_of(run, m), m->number, granule, 0) : NULL;
  int kept = 0, both = 0;
  for (int i = 0; list && i < list->count; ++i) {
    const Access a = list->accesses[i];
    const int unordered =
        a.what == A_WRITE && check_write_pair(run, by, m, granule, a, same, asynchronous);
    both |= unordered;
    if (unordered || a.what != A_WRITE || other_bits) list->accesses[kept++] = a;
  }
  if (list) list->count = kept;
  if (!several && earlier.stamp)
    both = check_write_pair(run, by, m, granule, earlier, same, asynchronous);
  if (both) check_past(run, by, m, granule);
  check_readers_and_atomics(run, by, m, granule, asynchronous);
  if (run->fencing && !m->reads) forget_list(run, m, granule, READS | ATOMICS);
  if (earlier.stamp && other_bits) remember_past(run, m, granule, earlier, several);
  m->writes[granule] = stamp;
  if (m->write_blocks) m->write_blocks[granule] = run->blocks->writer;
  if (!both) return;
  list = accesses_of(table_of(run, m), m->number, granule, 1);
  if (!several) remember_access(list, earlier);
  remember_access(list, (Access){stamp, block_for(run, m), A_WRITE, 0, 0});
  m->writes[granule] = several_writes(run);
}

/* ---- lanes, in memories whose readers have stamps */
void emu_read_slowly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me) {
  const Observer by = lane_observer(W, EMU_LANE(me), EMU_PLACE(me));
  check_last_write(run_of(W), &by, m, granule, 0);
}

void emu_write_slowly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me, const void* value,
                      int width) {
  const Observer by = lane_observer(W, EMU_LANE(me), EMU_PLACE(me));
  write_granule(run_of(W), &by, m, granule, me, value, width, 0);
}

/* A second lane reads before the warp has met: from now on its lanes are kept one by one. */
void emu_another_reader(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp earlier,
                        EmuStamp me) {
  EmuRun* run = run_of(W);
  AccessList* list = accesses_of(table_of(run, m), m->number, granule, 1);
  int kept = 0;
  for (int i = 0; i < list->count; ++i) {
    const EmuStamp other = list->accesses[i].stamp;
    const int stale = list->accesses[i].what == A_READ && EMU_SLOT(other) == EMU_SLOT(me) &&
                      (!(earlier & EMU_SEVERAL) || EMU_LANE(other) == EMU_LANE(me));
    if (!stale) list->accesses[kept++] = list->accesses[i];
  }
  list->count = kept;
  if (!(earlier & EMU_SEVERAL)) remember_access(list, (Access){earlier, 0, A_READ, 0, 0});
  remember_access(list, (Access){me, 0, A_READ, 0, 0});
}

/* ---- memories whose accesses are all kept one by one */
/* Of equal accesses only the latest counts: whoever comes after it comes after those before it.
 * Where no fence orders blocks, one foreign block is enough: of two, one is not the writer's.
 * Where fences do, all stay, and the list is looked through when it is full. */
static void keep_access(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule,
                        Access new) {
  AccessList* list = accesses_of(table_of(run, m), m->number, granule, 1);
  unsigned foreign = 0;
  int kept = 0;
  for (int i = 0; i < list->count && (!run->fencing || list->count == list->room); ++i) {
    const Access a = list->accesses[i];
    if (a.what == new.what && before(run, by, m, granule, a)) continue;
    if (a.block != new.block && a.what == new.what && !run->fencing) {
      if (foreign && foreign != a.block) continue;
      foreign = a.block;
    }
    list->accesses[kept++] = a;
  }
  if (!run->fencing || list->count == list->room) list->count = kept;
  remember_access(list, new);
}

void emu_read_exactly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me) {
  EmuRun* run = run_of(W);
  const Observer by = lane_observer(W, EMU_LANE(me), EMU_PLACE(me));
  check_last_write(run, &by, m, granule, 0);
  check_list(run, &by, m, granule, -1, ATOMICS, 0);
  keep_access(run, &by, m, granule, (Access){me, block_for(run, m), A_READ, 0, 0});
}

void emu_write_exactly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me, const void* value,
                       int width) {
  EmuRun* run = run_of(W);
  const Observer by = lane_observer(W, EMU_LANE(me), EMU_PLACE(me));
  write_granule(run, &by, m, granule, me, value, width, 0);
}

static void atomically(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me, int taken) {
  EmuRun* run = run_of(W);
  const Observer by = lane_observer(W, EMU_LANE(me), EMU_PLACE(me));
  Access new = {me, block_for(run, m), AN_ATOMIC, 0, 0};
  check_last_write(run, &by, m, granule, 0);
  check_list(run, &by, m, granule, -1, READS, 0);
  if (run->fencing) {
    AccessList* list = accesses_of(table_of(run, m), m->number, granule, 1);
    synchronise(W, list, &new, m->info->space == EMU_SHARED, taken);
  }
  keep_access(run, &by, m, granule, new);
}

void emu_atomically(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me) {
  atomically(W, m, granule, me, 1);
}

/* Nobody takes the value that it finds. */
void emu_reduce(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me) {
  atomically(W, m, granule, me, 0);
}

/* ---- engines, and warps as a whole.  reader: which of the granule's stamps, -1: none */
static int is_asynchronous(const Observer* by) {
  return by->agent == BY_BULK || by->agent == BY_MBARRIER || by->agent == BY_WGMMA;
}

void read_by(EmuRun* run, const Observer* by, EmuMemory* m, long long granule, EmuStamp stamp,
             int reader) {
  if (!m->writes) return;
  check_last_write(run, by, m, granule, is_asynchronous(by));
  if (m->reads) {
    m->reads[granule * m->info->readers + reader] = stamp;
    return;
  }
  check_list(run, by, m, granule, -1, ATOMICS, is_asynchronous(by));
  keep_access(run, by, m, granule, (Access){stamp, block_for(run, m), A_READ, 0, 0});
}

void write_by(EmuRun* run, const Observer* by, EmuMemory* m, long long granule, EmuStamp stamp,
              const void* value, int width) {
  if (!m->writes) return;
  write_granule(run, by, m, granule, stamp, value, width, is_asynchronous(by));
}
