/* What the files of the emulator's runtime share.  Kernels see emulated.h alone.
 *
 * Happens-before is kept in vector clocks.  A clock vector has one entry a slot, and there are six
 * kinds of slots for each warp (the first alone where no engine works), one for each warpgroup's
 * MMAs and one for each mbarrier:
 *
 *   THREAD         what the warp's lanes have done up to its last full meeting or release
 *   FENCED         ... of that, what lies before a FENCE(PROXY_ASYNC) of the lane that did it
 *   COPIES         its cp.asyncs, by number of the group, that were waited for
 *   COPIES_FENCED  ... of those, what lies before a fence
 *   BULK_READ      bulk stores that have read their tile, by number of the group
 *   BULK_WRITE     ... that have written
 *
 * A lane that releases alone says so in a slot of its own (an *elected* slot), given out when it
 * first does.  Rules: book, chapter on checked emulation.
 *
 * Where a kernel has fences of memory and atomics, a vector has four *layers*, each with all slots:
 *
 *   KNOWN                what is known; all others have this layer only
 *   BEHIND_FENCE         ... of that, what lies before a fence that is known
 *   BEHIND_DEVICE_FENCE  ... before a FENCE(DEVICE)
 *   BEHIND_BOTH          ... before a FENCE(DEVICE) that lies before a fence of either scope
 *
 * The blocks of a cluster run together: their warps are numbered on, each with slots of its own; each
 * block has memories of its own but for GLOBAL and CLUSTER ones.
 */
#ifndef UOPC_EMULATED_RUNTIME_H
#define UOPC_EMULATED_RUNTIME_H

#include "emulated.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;

/* ---- what a caller asks and is told; the same records stand in uopc/runtime/emulated.py */
enum { FORWARD, BACKWARD, SHUFFLED };
enum { EARLY, LATE, RANDOM };
enum { DEADLOCKED = 1, NO_MEMORY, FAILED }; /* what a kernel returns */

enum FaultKind {
  BOUNDS = 1,
  MISALIGNED,
  UNINITIALISED,
  RACE,
  SAME_VALUE,
  DIVERGENT_BARRIER,
  MEMBERS,
  DEADLOCK,
  MBARRIER,
  ACCUMULATOR,
  PROXY_FENCE,
  UNWAITED,
  UNWRITTEN,
  INDEX_OVERFLOW,
  ASSERTION,
  COPY,
  CLUSTER
};
enum {
  MBARRIER_NOT_INITIALISED = 1,
  MBARRIER_TOO_MANY,
  MBARRIER_PARITY_ALIAS,
  MBARRIER_NOT_FENCED,
  MBARRIER_INITIALISED_TWICE,
  MBARRIER_LATE_WAIT,
  MBARRIER_EARLY_ARRIVAL
};
enum { ACCUMULATOR_NOT_FENCED = 1, ACCUMULATOR_IN_FLIGHT };
enum { CLUSTER_NOT_STARTED = 1, CLUSTER_ENDED, CLUSTER_NOT_ARRIVED, CLUSTER_ARRIVED_TWICE };
enum { COPY_SEVERAL_LANES = 1, COPY_DESTINATION, COPY_COORDINATE };
enum {
  WAITS_FOR_BLOCK = 1,
  WAITS_FOR_NAMED,
  WAITS_FOR_MBARRIER,
  WAITS_FOR_GROUP,
  WAITS_FOR_CLUSTER
};
enum Agent { BY_THREAD, BY_CP_ASYNC, BY_BULK, BY_WGMMA, BY_MBARRIER, BY_ATOMIC, BY_SENDER };
enum { EVENT_VALUE, EVENT_ACCESS, EVENT_EFFECT, EVENT_PRINT };

enum { MOST_DETAILS = 5 };
typedef struct {
  int kind, place, memory, block, warp, lane;
  int other_place, other_block, other_warp, other_lane, other_agent;
  int details, detail[MOST_DETAILS];
  long long offset;
  long long unexplained; /* granules of an UNINITIALISED that no race has explained */
  long long moment;      /* events that had been told before */
} Fault;

typedef struct {
  int what, place, block, thread, position, loops;
  u64 bits;
  long long address;
  long long values[EMU_MOST_LOOPS];
} Event;

typedef struct {
  int order, lanes, engine, all, mutation;
  unsigned seed, engine_seed;
  int traced_count;
  const int* traced;                /* pairs of block and thread */
  const unsigned char* initialised; /* by parameter */
  /* told */
  int fault_count, fault_room;
  Fault* faults;
  long long event_count, event_room;
  Event* events;
} Request;

/* ---- slots */
enum { OF_THREAD, OF_FENCED, OF_COPIES, OF_COPIES_FENCED, OF_BULK_READ, OF_BULK_WRITE, KINDS };
enum { MOST_SLOTS = 1 << EMU_SLOT_BITS, MOST_NAMED = 16, MOST_GROUPS = 1024 };
enum { MOST_CLUSTER = 16, MOST_WARPS = 32 * MOST_CLUSTER };
/* Barriers by number: 0 the block's, then named ones; in a kernel of clusters 0 is that of its
 * first block, then come the cluster's and those of its other blocks. */
enum { BARRIER_OF_CLUSTER = MOST_NAMED, MOST_BARRIERS = MOST_NAMED + MOST_CLUSTER };

enum { KNOWN, BEHIND_FENCE, BEHIND_DEVICE_FENCE, BEHIND_BOTH, LAYERS };

struct EmuView {
  unsigned mask;
  unsigned* known;
};

struct EmuSnapshot {
  int users;
  unsigned known[];
};

/* Groups of an engine of one warp: lanes may commit together or alone. */
typedef struct {
  unsigned commits;
  unsigned masks[MOST_GROUPS]; /* lanes of commit number n, at n % MOST_GROUPS */
  unsigned last[EMU_LANES];    /* number of the group of a lane's last operation */
  unsigned done[EMU_LANES];    /* operations of groups up to this are finished */
  unsigned pending[EMU_LANES]; /* operations that are queued */
} Groups;

struct EmuGroups {
  Groups copies, bulk;
  unsigned clocks[KINDS][EMU_LANES]; /* of each lane: fenced, waited for, ... */
  unsigned mmas, mmas_done;          /* started, finished */
  int mma_open;                      /* not committed */
  unsigned mma_commits, mma_commit[MOST_GROUPS];
  unsigned mma_waited; /* commits that were waited for */
};

typedef struct {
  int arrived, generation, place, warp, wanted;
  unsigned who, who_before; /* warps of this meeting, and of the last one */
  unsigned* gathered;       /* clocks of those that have come */
  unsigned* released;       /* of the last meeting */
} Barrier;

/* A wait that has passed: who, and the number of his next MMA. */
typedef struct {
  EmuStamp stamp;
  unsigned mma;
} Passed;

/* Lanes of a warp that have arrived together. */
typedef struct {
  int warp;
  unsigned clock, mask;
} Arrival;

typedef struct {
  int count, pending, initialised;
  long long bytes;    /* expected and not yet there */
  unsigned phase;     /* completed ones */
  unsigned awaited;   /* somebody has waited for those up to this */
  unsigned loading;   /* the last that a bulk copy counts in */
  EmuStamp load;      /* that copy */
  EmuStamp by;        /* its initialisation */
  EmuStamp fenced;    /* the fence of the lane that initialised it */
  int announced;      /* by an arrival for this generation of the cluster's barrier, plus 1 */
  EmuStamp early;     /* an arrival that another order may count for an earlier phase */
  unsigned early_phase; /* that of this order */
  unsigned* gathered; /* clocks of those that have arrived */
  unsigned* released; /* as the last phase ended */
  unsigned* arrived;  /* the same without the barrier's own slot */
  unsigned* earlier;  /* as the phase before that ended */
  Passed* passed;     /* waits in the phase that runs */
  int passed_count, passed_room;
  Arrival* arrivals; /* all of this block, where no bytes count */
  int arrival_count, arrival_room;
} Mbarrier;

enum { VECTORS_OF_BARRIER = 2, VECTORS_OF_MBARRIER = 4 };

/* Who asks whether an access is ordered before it: a lane, all lanes together (-1), or an
 * asynchronous operation, which knows what its issuer knew. */
typedef struct {
  int warp, lane, agent, place;
  const unsigned* known;
  unsigned clock; /* the lane's own accesses up to this */
  unsigned own[KINDS];
} Observer;

typedef struct {
  int agent, place, warp, lane;
  unsigned number; /* of its group, or of the MMA */
  EmuSnapshot* snapshot;
  Observer observer;
  /* copies */
  const EmuTensorMap* map;
  int to, from, width, gate, barrier;
  long long to_at, from_at, coordinates[EMU_MOST_RANK];
  /* MMAs */
  const struct TcAtom* atom;
  void* accumulator;
  const void* a;
  long accumulator_stride, a_stride;
  u64 a_descriptor, b_descriptor;
  int a_transposed, b_transposed, keep;
} Operation;

typedef struct {
  Operation* operations;
  int head, count, room;
} Queue;

/* Accesses of one granule that are kept one by one. */
enum { A_READ, AN_ATOMIC, A_WRITE, A_PAST_WRITE };
enum { TO_BLOCK = 1, TO_DEVICE };
typedef struct {
  EmuStamp stamp;
  unsigned block;
  unsigned what : 2;
  unsigned released : 2; /* of an atomic: has it released something, and to whom? */
  unsigned number : 28;  /* ... and which of its location is it? */
} Access;

typedef struct {
  u64 key; /* 0: free */
  Access* accesses;
  int count, room;
  int location; /* of atomics, where fences order them; 0: none */
} AccessList;

typedef struct {
  AccessList* lists;
  int used, size;
} AccessTable;

/* The slot of a lane alone: what its whole warp does in slot `warp_slot` it does too. */
typedef struct {
  short warp_slot, warp, lane;
} Elected;

typedef struct Fencing Fencing; /* what fences and atomics order */

typedef struct EmuRun {
  EmuBlock blocks[MOST_CLUSTER]; /* that run together: one, or a cluster by rank */
  const EmuKernel* kernel;
  Request* request;
  int checked, stopped, code;
  int number;  /* of the (first) block */
  int cluster; /* how many blocks run together */
  int warps;   /* of all of them */
  EmuWarp* warp[MOST_WARPS];
  EmuView* views[MOST_WARPS]; /* room for those of each warp */
  unsigned char* states;
  long long moves; /* arrivals and passed waits: has anything happened? */
  u64 random;
  /* clocks */
  int slots; /* of a vector: `layer` of each of its layers, of which used_slots are in use */
  int layer, used_slots, mma_slots, mbarrier_slots;
  int several_writes; /* a slot that nobody knows: stamps in it stand for a list of equal writes */
  short* elected;     /* [kind][warp][lane]: its slot, 0 for none */
  Elected* elects;    /* by elected slot: whose it is */
  unsigned char* parts; /* of a cluster: what `cluster` of its blocks says */
  Barrier barriers[MOST_BARRIERS];
  int barrier_count;
  Mbarrier* mbarriers;
  Fencing* fencing; /* NULL: no fence orders anything */
  unsigned* clocks; /* all vectors of warps, barriers and mbarriers */
  /* memory */
  EmuMemory* memories;
  AccessTable shared_accesses, global_accesses, uninitialised;
  unsigned char poison[512], dropped[512];
  /* asynchronous work */
  Queue* queues;
  int queue_count, busy_count;
  int* busy;
  long long queued;
} EmuRun;

static inline EmuRun* run_of(const EmuWarp* W) { return W->block->run; }
static inline int warps_of_block(const EmuRun* run) { return run->warps / run->cluster; }
static inline int mbarriers_of(const EmuRun* run) { return run->cluster * run->kernel->mbarriers; }
static inline int rank_of(const EmuRun* run, int warp) { return warp / warps_of_block(run); }
/* Of the kernel: the blocks of a cluster have copies of a SHARED memory, numbered on. */
static inline int memory_number(const EmuRun* run, int number) {
  return number < 0 ? number : number % run->kernel->memory_count;
}

/* ---- emulated_clocks.c */
int slot_of(const EmuRun* run, int kind, int warp);
int elect(EmuRun* run, int kind, int warp, int lane);
int ordered(const EmuRun* run, const Observer* by, EmuStamp stamp);
int fenced(const EmuRun* run, const Observer* by, EmuStamp stamp);
Observer lane_observer(const EmuWarp* W, int lane, int place);
unsigned* known_by(const EmuWarp* W, int lane);
void join(const EmuRun* run, unsigned* into, const unsigned* from);
void part(EmuWarp* W, unsigned mask);
void learn(EmuWarp* W, const unsigned* clocks, unsigned mask);
void publish(EmuWarp* W, unsigned* clocks, unsigned mask);
void meet(EmuWarp* W);
void tick(EmuWarp* W);
EmuSnapshot* snapshot_of(EmuWarp* W, int lane);
void drop_snapshot(EmuSnapshot* snapshot);

/* ---- emulated_faults.c */
Fault fault_at(const EmuRun* run, int kind, int place, int memory, long long offset, int warp,
               int lane);
Fault* report(EmuRun* run, Fault new);
void report_details(EmuRun* run, Fault new, int count, const int* details);
void report_pair(EmuRun* run, int kind, const Observer* by, const EmuMemory* m, long long granule,
                 Access other);
void race_explains(EmuRun* run, int memory, long long granule);
void uninitialised(EmuRun* run, const Observer* by, const EmuMemory* m, long long granule);
void drop_explained(Request* request);
void keep_first(Request* request);
AccessList* accesses_of(AccessTable* table, int memory, long long granule, int make);
void remember_access(AccessList* list, Access access);
void forget_accesses(AccessTable* table);

/* ---- emulated_fences.c */
void make_fencing(EmuRun* run);
void end_fencing(EmuRun* run);
void free_fencing(EmuRun* run);
void publish_fences(EmuWarp* W, unsigned* clocks, unsigned mask);
void fence_memory(EmuWarp* W, unsigned mask, int device);
void synchronise(EmuWarp* W, AccessList* list, Access* atomic, int shared, int taken);
int handed_over(const EmuRun* run, const Observer* by, int location, Access access);

/* ---- emulated_memory.c */
void read_by(EmuRun* run, const Observer* by, EmuMemory* m, long long granule, EmuStamp stamp,
             int reader);
void write_by(EmuRun* run, const Observer* by, EmuMemory* m, long long granule, EmuStamp stamp,
              const void* value, int width);
int inside(EmuRun* run, const Observer* by, const EmuMemory* m, long long at, long long width,
           int align);

/* ---- emulated_barriers.c */
/* What a warp arrives at: a barrier by number, what it waits for there, how many warps meet.
 * starts: it tells of nothing but that its block has started. */
typedef struct {
  int number, what, warps, starts;
} Meeting;
void arrive(EmuWarp* W, unsigned mask, int place, Meeting at);
Mbarrier* usable_mbarrier(EmuWarp* W, unsigned mask, int place, int memory, long long index);
Mbarrier* mbarrier_of(EmuWarp* W, unsigned mask, int place, int memory, long long index, int rank);
void complete_phase(EmuRun* run, Mbarrier* barrier);
void fence_initialised(EmuWarp* W, unsigned mask);

/* ---- emulated_clusters.c */
void all_blocks_were_there(EmuRun* run);

/* ---- emulated_engines.c */
void issue(EmuWarp* W, Operation op);
void step_engine(EmuRun* run, unsigned pick);
int groups_are_done(EmuWarp* W);
void all_work_was_waited_for(EmuWarp* W);
void all_loads_were_waited_for(EmuRun* run);
void make_queues(EmuRun* run);
void free_queues(EmuRun* run);
u64 next_random(EmuRun* run);

/* ---- emulated_tensor.c */
void execute_mma(EmuRun* run, Operation* op);

#endif
