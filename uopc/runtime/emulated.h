/* What the text of an emulated kernel calls (`uopc/render/emulate.py` writes it): a warp's state,
 * checked accesses to memory, meetings of lanes and warps, asynchronous work.
 *
 * C11 without any other header, so that gcc, clang and tcc take it alike.  The functions stand in
 * emulated*.c, which is compiled once on a machine; only the way of an access that finds nothing
 * wrong is inline here.
 *
 * Words.  A *stamp* says who accessed a granule of memory, and when: clock, place, lane, slot.
 * A *granule* is the narrowest access that a kernel makes to a memory.  A *slot* is an entry of the
 * clock vectors: what an agent (a warp, one of its lanes, an engine) has done that others know of.
 * A *place* is the number of an access or effect in the kernel's text.
 */
#ifndef UOPC_EMULATED_H
#define UOPC_EMULATED_H

#ifdef __TINYC__
#define EMU_RARE(x) (x)
#else
#define EMU_RARE(x) __builtin_expect(!!(x), 0)
#endif

enum { EMU_LANES = 32, EMU_MOST_RANK = 5, EMU_MOST_LOOPS = 8 };

/* ---- stamps: clock << 32 | place << 16 | several << 15 | lane << 10 | slot; 0 is "nobody" */
typedef unsigned long long EmuStamp;
enum { EMU_SLOT_BITS = 10, EMU_LANE_SHIFT = 10, EMU_PLACE_SHIFT = 16 };
#define EMU_SLOT(stamp) ((int)((stamp) & 0x3ff))
#define EMU_LANE(stamp) ((int)((stamp) >> EMU_LANE_SHIFT & 31))
#define EMU_PLACE(stamp) ((int)((stamp) >> EMU_PLACE_SHIFT & 0xffff))
#define EMU_CLOCK(stamp) ((unsigned)((stamp) >> 32))
/* of a reader's stamp: several lanes of the warp have read since they last met */
#define EMU_SEVERAL ((EmuStamp)1 << 15)
#define EMU_LANE_BITS ((EmuStamp)31 << EMU_LANE_SHIFT)

/* ---- a warp */
typedef struct EmuBlock EmuBlock;
typedef struct EmuMemory EmuMemory;
typedef struct EmuView EmuView;
typedef struct EmuSnapshot EmuSnapshot;
typedef struct EmuGroups EmuGroups;

/* What a warp waits for; kept while it is stopped. */
typedef struct {
  int what; /* EmuWait, 0: nothing */
  int place, number, generation, wanted;
  unsigned mask;
} EmuWaiting;

/* The head of a warp's state; the kernel's own fields follow. */
typedef struct {
  int pc;                /* where the warp goes on; -1: it is done */
  int warp;              /* its number in the block, or in all blocks of a cluster */
  int lanes;             /* that exist: 32, or fewer in the last warp */
  unsigned full;         /* a bit for each of them */
  int first, stop, step; /* how loops over lanes run */
  int mutation;          /* which synchronisation is deleted or twisted, 0: none */
  unsigned clock;        /* grows at each release and at each start of asynchronous work */
  unsigned* known;       /* clock vector: what all lanes know */
  EmuView* views;        /* lanes that know more than that */
  int view_count;
  EmuBlock* block;
  EmuWaiting waiting;
  EmuSnapshot* snapshot; /* of `known`, while it does not change */
  EmuGroups* groups;     /* asynchronous work that this warp has started */
  /* memories in registers that MMAs of warpgroups work on, a bit each */
  unsigned long long accumulators_used; /* since its last FENCE(WGMMA) */
  unsigned long long accumulators_busy; /* an MMA may still write or read them */
  int has_arrived;       /* at the cluster's barrier, and is to wait for generation ... */
  int awaited;
  int cluster_passed; /* the last generation of that barrier that it has waited for, plus 1 */
} EmuWarp;

/* ---- memory */
enum { EMU_GLOBAL, EMU_SHARED, EMU_REGISTERS, EMU_MBARRIERS, EMU_CLUSTER };

/* One memory of a kernel, as its text knows it. */
typedef struct {
  int space;
  /* GLOBAL: number of the argument; SHARED, CLUSTER: bytes from the start; MBARRIERS: that of the
   * first */
  int at;
  long long bytes;
  int item_bytes;
  int shift; /* a granule has 1 << shift bytes */
  /* stamps of readers a granule: one a warp, one a warpgroup for wgmma, one a warp for bulk */
  int readers;
  int wgmma_reader, bulk_reader; /* where those begin */
  int written, read;
  int exact; /* atomics, or lanes that meet apart from their warp: readers are kept one by one */
  long long segment; /* elements of each of a bundle's memories; 0: it is one memory */
} EmuMemoryInfo;

struct EmuMemory {
  const EmuMemoryInfo* info;
  int number;
  int initialised; /* holds values before the kernel */
  unsigned char* data;
  EmuStamp* writes;       /* one a granule: its last write */
  EmuStamp* reads;        /* info->readers a granule */
  EmuStamp* past_writes;  /* SHARED: the one that the last write of other bits has overwritten */
  unsigned* write_blocks; /* GLOBAL: number of the block that wrote, plus 1 */
  /* of a bundle the caller's table; `data` is a copy of its memories, one after the other */
  const unsigned long long* table;
};

/* ---- a kernel */
typedef struct {
  int (*run)(void* state); /* a warp up to where it has to wait (1), or to its end (0) */
  long state_bytes;
  int threads;
  int grid_axes, grid[8]; /* sizes; block numbers count the first axis fastest */
  int shared_bytes;
  int parameters;
  int mbarriers;
  int checked;
  int engines;     /* asynchronous work, fences */
  int alone;       /* lanes meet or arrive apart from their warp */
  int order, seed; /* without a request */
  int memory_count;
  const EmuMemoryInfo* memories;
  int fences; /* of memory, and atomics: together they order */
  int cluster; /* blocks of a cluster, which run together; 0: there are none */
} EmuKernel;

int emu_launch(const EmuKernel* kernel, void** args);
void emu_forget(void* request); /* frees what a request was told */

/* The numbers of a block, outermost struct of what a warp can reach. */
struct EmuBlock {
  void** args;
  unsigned char* shared;
  int place[8];    /* its place on each axis of the grid */
  unsigned writer; /* its number (that of its cluster) plus 1: what stamps of GLOBAL memory say */
  EmuMemory* memories;
  unsigned char* cluster; /* CLUSTER memories: of each the parts of all blocks, by rank */
  struct EmuRun* run;
  /* the rest is the runtime's */
};

/* ---- accesses that are checked.  `me` is the lane's stamp without a place, `own` the clock of the
 * warp's last full meeting; a text has both in each loop over lanes. */
void* emu_outside(EmuWarp* W, const EmuMemory* m, long long at, int width, EmuStamp me, int write);
void emu_outside_segment(EmuWarp* W, const EmuMemory* m, long long which, long long at,
                         EmuStamp me);
void emu_read_slowly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me);
void emu_write_slowly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me, const void* value,
                      int width);
void emu_another_reader(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp before, EmuStamp me);
void emu_read_exactly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me);
void emu_write_exactly(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me, const void* value,
                       int width);
void emu_atomically(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me);
void emu_reduce(EmuWarp* W, EmuMemory* m, long long granule, EmuStamp me);
void emu_uninitialised_register(EmuWarp* W, int memory, long long at, EmuStamp me);

static inline EmuStamp emu_me(const EmuWarp* W, int l) {
  return (EmuStamp)W->clock << 32 | (EmuStamp)l << EMU_LANE_SHIFT | (EmuStamp)W->warp;
}

/* `proven`: neither bounds nor alignment can be wrong. */
static inline int emu_wrong_place(long long at, int width, long long bytes, int proven) {
  return !proven &&
         ((unsigned long long)at > (unsigned long long)(bytes - width) || (at & (width - 1)));
}

/* The number of an element in all of a bundle; -1, where no access is made, once it is reported. */
static inline long long emu_segment(EmuWarp* W, const EmuMemory* m, long long which, long long at,
                                    int width, EmuStamp me) {
  const long long length = m->info->segment, count = m->info->bytes / (length * m->info->item_bytes);
  const int is_there = which >= 0 && which < count;
  if (EMU_RARE(!is_there || at < 0 || at + width > (long long)m->table[count + which])) {
    emu_outside_segment(W, m, which, at, me);
    return -1;
  }
  return which * length + at;
}

static inline void* emu_shared_read(EmuWarp* W, EmuMemory* m, unsigned char* data, EmuStamp* writes,
                                    EmuStamp* reads, long long bytes, int shift, int readers,
                                    int exact, long long at, int width, int proven, EmuStamp me,
                                    unsigned own) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, 0);
  const int warp = W->warp;
  const long long first = at >> shift;
  for (int k = 0; k < width >> shift; ++k) {
    const EmuStamp w = writes[first + k];
    if (EMU_RARE(!w || W->known[EMU_SLOT(w)] < EMU_CLOCK(w))) emu_read_slowly(W, m, first + k, me);
    EmuStamp* const r = reads + (first + k) * readers + warp;
    const EmuStamp before = *r;
    const int shares = EMU_CLOCK(before) > own && ((before ^ me) & (EMU_LANE_BITS | EMU_SEVERAL));
    if (exact && shares) emu_another_reader(W, m, first + k, before, me);
    *r = shares ? me | EMU_SEVERAL : me;
  }
  return data + at;
}

/* Where nothing stores between two barriers (`uopc/render/intervals.py`). */
static inline void* emu_undisturbed_read(EmuWarp* W, EmuMemory* m, unsigned char* data,
                                         const EmuStamp* writes, long long bytes, int shift,
                                         long long at, int width, int proven, EmuStamp me) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, 0);
  const long long first = at >> shift;
  for (int k = 0; k < width >> shift; ++k)
    if (EMU_RARE(!writes[first + k])) emu_read_slowly(W, m, first + k, me);
  return data + at;
}

int memcmp(const void*, const void*, unsigned long);

/* The value is still in the writer's hand. */
static inline void* emu_shared_write(EmuWarp* W, EmuMemory* m, unsigned char* data,
                                     EmuStamp* writes, EmuStamp* reads, long long bytes, int shift,
                                     int readers, long long at, int width, int proven, EmuStamp me,
                                     const void* value) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, 1);
  const long long first = at >> shift;
  for (int k = 0; k < width >> shift; ++k) {
    const EmuStamp w = writes[first + k];
    const char* const new = (const char*)value + ((long long)k << shift);
    int late = W->known[EMU_SLOT(w)] < EMU_CLOCK(w);
    for (int i = 0; i < readers; ++i) {
      const EmuStamp r = reads[(first + k) * readers + i];
      late |= W->known[EMU_SLOT(r)] < EMU_CLOCK(r);
    }
    if (EMU_RARE(late)) {
      emu_write_slowly(W, m, first + k, me, new, 1 << shift);
    } else {
      if (w && memcmp(data + ((first + k) << shift), new, 1 << shift))
        m->past_writes[first + k] = w;
      writes[first + k] = me;
    }
  }
  return data + at;
}

/* An access of CLUSTER memory: in what another block holds, that block must have started. */
void emu_reach(EmuWarp* W, const EmuMemory* m, long long at, EmuStamp me);

/* Memories whose readers are kept one by one. */
static inline void* emu_exact(EmuWarp* W, EmuMemory* m, unsigned char* data, long long bytes,
                              int shift, long long at, int width, int proven, EmuStamp me, int how,
                              const void* value) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, how != 0);
  for (int k = 0; k < width >> shift; ++k) {
    const long long granule = (at >> shift) + k;
    if (how == 0)
      emu_read_exactly(W, m, granule, me);
    else if (how == 1)
      emu_write_exactly(W, m, granule, me, (const char*)value + ((long long)k << shift),
                        1 << shift);
    else if (how == 2)
      emu_atomically(W, m, granule, me);
    else
      emu_reduce(W, m, granule, me);
  }
  return data + at;
}

/* GLOBAL memory that the kernel writes and never reads. */
static inline void* emu_global_write(EmuWarp* W, EmuMemory* m, unsigned char* data,
                                     EmuStamp* writes, long long bytes, int shift, long long at,
                                     int width, int proven, EmuStamp me, const void* value) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, 1);
  for (int k = 0; k < width >> shift; ++k) {
    const long long granule = (at >> shift) + k;
    if (EMU_RARE(writes[granule]))
      emu_write_exactly(W, m, granule, me, (const char*)value + ((long long)k << shift),
                        1 << shift);
    else {
      writes[granule] = me;
      m->write_blocks[granule] = W->block->writer;
    }
  }
  return data + at;
}

/* GLOBAL memory that the kernel never writes. */
static inline void* emu_inside(EmuWarp* W, EmuMemory* m, unsigned char* data, long long bytes,
                               long long at, int width, int proven, EmuStamp me) {
  if (EMU_RARE(emu_wrong_place(at, width, bytes, proven)))
    return emu_outside(W, m, at, width, me, 0);
  return data + at;
}

/* How the text says it: of a memory x it has x, x_memory, x_bytes, x_shift, ... */
#define EMU_AT(place) (me | (EmuStamp)(place) << EMU_PLACE_SHIFT)
#define emu_read(x, width, at, proven, place)                                                    \
  emu_shared_read(W, x##_memory, (unsigned char*)x, x##_writes, x##_reads, x##_bytes, x##_shift, \
                  x##_readers, x##_exact, at, width, proven, EMU_AT(place), own)
#define emu_cluster_read(x, width, at, proven, place)    \
  (emu_reach(W, x##_memory, at, EMU_AT(place)), \
   emu_read(x, width, at, proven, place))
#define emu_cluster_write(x, width, at, proven, place, value) \
  (emu_reach(W, x##_memory, at, EMU_AT(place)),      \
   emu_write(x, width, at, proven, place, value))
#define emu_calm_read(x, width, at, proven, place)                                            \
  emu_undisturbed_read(W, x##_memory, (unsigned char*)x, x##_writes, x##_bytes, x##_shift, at, \
                       width, proven, EMU_AT(place))
#define emu_write(x, width, at, proven, place, value)                                             \
  emu_shared_write(W, x##_memory, (unsigned char*)x, x##_writes, x##_reads, x##_bytes, x##_shift, \
                   x##_readers, at, width, proven, EMU_AT(place), value)
#define emu_read_one(x, width, at, proven, place)                                      \
  emu_exact(W, x##_memory, (unsigned char*)x, x##_bytes, x##_shift, at, width, proven, \
            EMU_AT(place), 0, 0)
#define emu_write_one(x, width, at, proven, place, value)                              \
  emu_exact(W, x##_memory, (unsigned char*)x, x##_bytes, x##_shift, at, width, proven, \
            EMU_AT(place), 1, value)
#define emu_atomic(x, width, at, proven, place)                                        \
  emu_exact(W, x##_memory, (unsigned char*)x, x##_bytes, x##_shift, at, width, proven, \
            EMU_AT(place), 2, 0)
#define emu_reduction(x, width, at, proven, place)                                     \
  emu_exact(W, x##_memory, (unsigned char*)x, x##_bytes, x##_shift, at, width, proven, \
            EMU_AT(place), 3, 0)
#define emu_output(x, width, at, proven, place, value)                                            \
  emu_global_write(W, x##_memory, (unsigned char*)x, x##_writes, x##_bytes, x##_shift, at, width, \
                   proven, EMU_AT(place), value)
#define emu_input(x, width, at, proven, place) \
  emu_inside(W, x##_memory, (unsigned char*)x, x##_bytes, at, width, proven, EMU_AT(place))

/* ---- indices that data integers hold (`uopc/render/overflow.py`): `at` is what they give, `exact`
 * what their arithmetic means, `bits` their width */
void emu_index_wraps(EmuWarp* W, int memory, EmuStamp me, long long at, const long double* exact,
                     int bits);

static inline long long emu_index(EmuWarp* W, int memory, EmuStamp me, long long at,
                                  long double exact, int bits) {
  if (EMU_RARE(exact != (long double)at)) emu_index_wraps(W, memory, me, at, &exact, bits);
  return at;
}
static inline long double emu_larger(long double a, long double b) { return a > b ? a : b; }
static inline long double emu_smaller(long double a, long double b) { return a < b ? a : b; }
static inline long double emu_shifted(long double x, long long by) {
  for (by = by < 128 ? by : 128; by > 0; --by) x *= 2;
  return x;
}

/* ---- registers that are not proven to be written before they are read: a byte each says so */
static inline long long emu_register(EmuWarp* W, int memory, unsigned char* set, long long at,
                                     int count, int width, int write, EmuStamp me) {
  if (EMU_RARE(at < 0 || at + width > count)) {
    emu_uninitialised_register(W, memory, at, me);
    return 0;
  }
  for (int k = 0; k < width; ++k) {
    if (write)
      set[at + k] = 1;
    else if (EMU_RARE(set[at + k] != 1))
      emu_uninitialised_register(W, memory, at + k, me);
  }
  return at;
}
/* the same for registers of all lanes of a mask, before or after an op of the warp */
void emu_registers(EmuWarp* W, unsigned mask, int place, int memory, unsigned char* set,
                   long stride, long long at, int count, int width, int write);

/* ---- lanes of a warp */
static inline int emu_first(unsigned mask) {
  int l = 0;
  while (!(mask >> l & 1)) ++l;
  return l;
}
/* The lane that gives, or the taker itself where there is none. */
static inline int emu_giver(int from, int to, int lanes) {
  return from < 0 || from >= lanes ? to : from;
}

void emu_members(EmuWarp* W, unsigned mask, int place, unsigned members);
void emu_gives(EmuWarp* W, unsigned mask, int place, int from, int to);
void emu_warp_barrier(EmuWarp* W, unsigned mask, int place, unsigned members);

/* ---- warps of a block.  After what a warp may have to wait for, emu_passed is asked until it
 * says 1. */
void emu_block_barrier(EmuWarp* W, unsigned mask, int place);
void emu_cluster_barrier(EmuWarp* W, unsigned mask, int place);
void emu_cluster_arrive(EmuWarp* W, unsigned mask, int place);
void emu_cluster_wait(EmuWarp* W, unsigned mask, int place);
void emu_send(EmuWarp* W, int lane, int place, int to, long long at, int width, int barriers,
              long long barrier, const void* value);
void emu_named_barrier(EmuWarp* W, unsigned mask, int place, long long number, int threads);
void emu_mbarrier_init(EmuWarp* W, unsigned mask, int place, int memory, long long index,
                       long long count);
void emu_arrive(EmuWarp* W, unsigned mask, int place, int memory, long long index, long long bytes);
void emu_mbarrier_wait(EmuWarp* W, unsigned mask, int place, int memory, long long index,
                       int parity);
int emu_passed(EmuWarp* W);

/* ---- asynchronous work */
enum { EMU_CP_ASYNC = 1, EMU_BULK, EMU_WGMMA };
enum { EMU_FENCE_PROXY, EMU_FENCE_MBARRIER, EMU_FENCE_WGMMA, EMU_FENCE_BLOCK, EMU_FENCE_DEVICE };

typedef struct {
  int memory, rank;
  long long shape[EMU_MOST_RANK], strides[EMU_MOST_RANK]; /* outermost first; strides in bytes */
  int box[EMU_MOST_RANK];
  int swizzle;
} EmuTensorMap;

void emu_copy(EmuWarp* W, int lane, int place, int to, long long to_at, int from, long long from_at,
              int width, int gate);
void emu_bulk_load(EmuWarp* W, unsigned mask, int place, const EmuTensorMap* map, int to,
                   long long to_at, int barriers, long long barrier, const long long* coordinates);
void emu_bulk_store(EmuWarp* W, unsigned mask, int place, const EmuTensorMap* map, int from,
                    long long from_at, const long long* coordinates);
void emu_commit(EmuWarp* W, unsigned mask, int place, int engine);
void emu_wait_group(EmuWarp* W, unsigned mask, int place, int engine, int pending, int read);
void emu_fence(EmuWarp* W, unsigned mask, int place, int fence);

/* ---- tensor cores: registers of lane l are l * stride bytes after the first */
struct TcAtom;
void emu_ldmatrix(EmuWarp* W, unsigned mask, int place, unsigned* registers, long stride,
                  int memory, const long long* at, int tiles, int transposed);
void emu_stmatrix(EmuWarp* W, unsigned mask, int place, const unsigned* registers, long stride,
                  int memory, const long long* at, int tiles, int transposed);
void emu_mma(EmuWarp* W, unsigned mask, int place, const struct TcAtom* atom, void* accumulator,
             long accumulator_stride, const void* a, long a_stride, const void* b, long b_stride);
void emu_wgmma(EmuWarp* W, unsigned mask, int place, const struct TcAtom* atom, void* accumulator,
               long accumulator_stride, const void* a, long a_stride,
               unsigned long long a_descriptor, int a_transposed, unsigned long long b_descriptor,
               int b_transposed, int keep, unsigned long long memories);
void emu_accumulators(EmuWarp* W, int place, unsigned long long memories);

/* ---- for people */
void emu_assert(EmuWarp* W, int lane, int place);
void emu_print(EmuWarp* W, int lane, int place, int position, unsigned long long bits);
int emu_traced(const EmuWarp* W, int lane);
void emu_trace(EmuWarp* W, int lane, int what, int place, unsigned long long bits,
               long long address, int loops, const long long* values);
void emu_tell(EmuWarp* W, unsigned mask, int place, int loops, const long long* values);
void* emu_watch(EmuWarp* W, int lane, int place, const void* memory, void* data, int width,
                const void* bits, int loops, const long long* values);

#endif
