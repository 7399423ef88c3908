/* What fences of memory and atomics order, inside a block and between blocks.
 *
 * Whatever comes before a fence F comes before whatever comes after a fence G, if an atomic A comes
 * after F, an atomic B observes A, and B comes before G.  "Comes before" is the order of a thread
 * and all that orders threads of one block: one thread may fence for those that it has met, or each
 * may fence before one of them does the atomic; and the rule applies over and over.  FENCE(DEVICE)
 * does so between any threads, FENCE(BLOCK) between those of its block.  A itself comes before what
 * comes after G, too.
 * Source: CUDA C++ Programming Guide, "Memory Fence Functions" (a __threadfence is a sequentially
 * consistent fence); PTX ISA, "Memory Consistency Model" (fence.sc, observation, causality order).
 *
 * An atomic observes those that were made at its location before it, since each reads what the last
 * one left, up to a plain write, which begins anew.  One whose value nobody takes (PTX: red) sees
 * nothing.  "Before" is said of this run: where a kernel goes on without a look at the value that B
 * returned, another order of blocks or warps may have nothing to observe, and another verdict.
 * Bulk copies that read what another block has written with ordinary stores need a proxy fence
 * besides, which is not checked.
 *
 * Inside a block clock vectors say all this: they have layers (emulated_runtime.h).  Blocks run one
 * after another, and each begins its clocks anew.  So a location keeps what each block has released
 * there; what a fence of the running block has acquired is an event with a stamp, and whoever is
 * ordered after that event knows what stood at its locations.
 */
#include "emulated_runtime.h"

/* Rows of clocks that do not change any more. */
typedef struct {
  int users, slots;
  unsigned known[];
} Rows;

/* Atomics of a location, up to one. */
typedef struct {
  int location;
  unsigned number;
} Seen;

/* What a block has released at a location to other blocks. */
typedef struct {
  unsigned block, number; /* of its last atomic that did */
  Rows* clocks;           /* of that block */
  Seen* seen;             /* what it had acquired itself */
  int seen_count, seen_room;
} Released;

/* A granule that atomics work on, until a plain write. */
typedef struct {
  unsigned number; /* atomics up to now */
  Released* released;
  int count, room, found; /* found: the one asked for last */
  unsigned block;         /* whose `inside` is: what it has released to its own threads */
  Rows* inside;
  int observed; /* the last event here, plus 1 */
} Location;

typedef struct {
  Location* locations;
  int count, room;
} Locations;

/* An atomic that found something released. */
typedef struct {
  EmuStamp stamp;
  Seen seen;
  int earlier; /* the event before it at this location, plus 1 */
  Rows* inside;
} Observed;

/* A fence after such an atomic. */
typedef struct {
  EmuStamp stamp;
  Seen seen;
  int device;
} Acquired;

struct Fencing {
  int fenced, released; /* has the running block fenced, released to others? */
  unsigned (*own)[LAYERS][KINDS][EMU_LANES]; /* by warp: what its lanes have fenced of theirs */
  unsigned* rows;                            /* room for LAYERS rows */
  short** elected;                           /* by block: its elected slots, if it has released */
  int blocks;
  Locations global, shared; /* the shared ones are the running block's */
  Observed* observed;       /* events of the running block */
  Acquired* acquired;
  int observed_count, observed_room, acquired_count, acquired_room;
  Seen* path; /* of a search */
  int path_count, path_room;
};

/* Room for one more in an array. */
static void* with_room(void* array, int count, int* room, size_t size) {
  if (count < *room) return array;
  *room = *room ? 2 * *room : 8;
  return realloc(array, (size_t)*room * size);
}

/* ---- rows of clocks */
static unsigned clock_in(const Rows* rows, int row, int slot) {
  return rows && slot < rows->slots ? rows->known[row * rows->slots + slot] : 0;
}

static void drop_rows(Rows* rows) {
  if (rows && !--rows->users) free(rows);
}

/* These rows and new ones together; the same where that adds nothing. */
static Rows* joined(Rows* old, int count, const unsigned* const* new, int slots) {
  int adds = 0;
  for (int r = 0; r < count; ++r)
    for (int i = 0; i < slots && !adds; ++i) adds = new[r][i] > clock_in(old, r, i);
  if (!adds) return old;
  Rows* both = malloc(sizeof *both + sizeof(unsigned) * (size_t)(count * slots));
  both->users = 1;
  both->slots = slots;
  for (int r = 0; r < count; ++r)
    for (int i = 0; i < slots; ++i) {
      const unsigned before = clock_in(old, r, i);
      both->known[r * slots + i] = new[r][i] > before ? new[r][i] : before;
    }
  drop_rows(old);
  return both;
}

/* Does one row of a block's clocks, with its elected slots, cover what a stamp says? */
static int covers(const EmuRun* run, const unsigned* clocks, int slots, const short* elected,
                  EmuStamp stamp) {
  const int slot = EMU_SLOT(stamp);
  if (slot < slots && clocks[slot] >= EMU_CLOCK(stamp)) return 1;
  if (stamp & EMU_SEVERAL || slot >= run->mma_slots || !elected) return 0;
  const int alone = elected[slot * EMU_LANES + EMU_LANE(stamp)];
  return alone && alone < slots && clocks[alone] >= EMU_CLOCK(stamp);
}

/* ---- locations: positive numbers for GLOBAL memory, negative ones for SHARED, 0 for none */
static Location* location_at(Fencing* all, int number) {
  return number > 0 ? &all->global.locations[number - 1] : &all->shared.locations[-number - 1];
}

static int new_location(Fencing* all, int shared) {
  Locations* of = shared ? &all->shared : &all->global;
  of->locations = with_room(of->locations, of->count, &of->room, sizeof(Location));
  memset(&of->locations[of->count++], 0, sizeof(Location));
  return shared ? -of->count : of->count;
}

static void forget_locations(Locations* of) {
  for (int i = 0; i < of->count; ++i) {
    Location* at = &of->locations[i];
    for (int k = 0; k < at->count; ++k) {
      drop_rows(at->released[k].clocks);
      free(at->released[k].seen);
    }
    free(at->released);
    drop_rows(at->inside);
  }
  of->count = 0;
}

/* ---- a launch, a block */
void make_fencing(EmuRun* run) {
  Fencing* all = run->fencing = calloc(1, sizeof *all);
  all->own = calloc((size_t)run->warps, sizeof *all->own);
  all->rows = calloc((size_t)run->slots, sizeof(unsigned));
  all->blocks = 1;
  for (int axis = 0; axis < run->kernel->grid_axes; ++axis) all->blocks *= run->kernel->grid[axis];
  all->elected = calloc((size_t)all->blocks, sizeof(short*));
}

/* What outlives a block is what it has released to others. */
void end_fencing(EmuRun* run) {
  Fencing* all = run->fencing;
  if (all->released) {
    const size_t size = sizeof(short) * (size_t)(KINDS * run->warps * EMU_LANES);
    all->elected[run->number] = malloc(size);
    memcpy(all->elected[run->number], run->elected, size);
  }
  for (int i = 0; i < all->observed_count; ++i) {
    const Observed* event = &all->observed[i];
    if (event->seen.location > 0) location_at(all, event->seen.location)->observed = 0;
    drop_rows(event->inside);
  }
  forget_locations(&all->shared);
  all->observed_count = all->acquired_count = 0;
  all->fenced = all->released = 0;
  memset(all->own, 0, sizeof *all->own * (size_t)run->warps);
}

void free_fencing(EmuRun* run) {
  Fencing* all = run->fencing;
  if (!all) return;
  all->released = 0;
  end_fencing(run);
  forget_locations(&all->global);
  for (int i = 0; i < all->blocks; ++i) free(all->elected[i]);
  free(all->elected);
  free(all->global.locations);
  free(all->shared.locations);
  free(all->observed);
  free(all->acquired);
  free(all->path);
  free(all->own);
  free(all->rows);
  free(all);
}

/* ---- layers of what lanes know */
static int kinds_of(const EmuWarp* W) { return W->groups ? KINDS : 1; }

/* What lanes release of their own fences, to the vector that they release to. */
void publish_fences(EmuWarp* W, unsigned* clocks, unsigned mask) {
  EmuRun* run = run_of(W);
  for (int layer = BEHIND_FENCE; layer < LAYERS; ++layer)
    for (int kind = 0; kind < kinds_of(W); ++kind) {
      const unsigned* own = run->fencing->own[W->warp][layer][kind];
      unsigned* row = clocks + layer * run->layer;
      unsigned* all = &row[slot_of(run, kind, W->warp)];
      unsigned least = ~0u;
      for (int l = 0; l < W->lanes; ++l)
        if (own[l] < least) least = own[l];
      if (mask == W->full && *all < least) *all = least;
      for (int l = 0; l < W->lanes; ++l) {
        if (!(mask >> l & 1) || own[l] <= *all) continue;
        const int slot = elect(run, kind, W->warp, l);
        if (row[slot] < own[l]) row[slot] = own[l];
      }
    }
}

static void raise_to(unsigned* clock, unsigned level) {
  if (*clock < level) *clock = level;
}

static void fence_known(const EmuRun* run, unsigned* known, int device) {
  for (int i = 0; i < run->used_slots; ++i, ++known) {
    raise_to(&known[BEHIND_FENCE * run->layer], *known);
    if (device) raise_to(&known[BEHIND_DEVICE_FENCE * run->layer], *known);
    raise_to(&known[BEHIND_BOTH * run->layer], known[BEHIND_DEVICE_FENCE * run->layer]);
  }
}

static void fence_own(EmuWarp* W, int lane, int device) {
  for (int kind = 0; kind < kinds_of(W); ++kind) {
    unsigned (*own)[KINDS][EMU_LANES] = run_of(W)->fencing->own[W->warp];
    const unsigned level = kind == OF_THREAD ? W->clock : W->groups->clocks[kind][lane];
    own[BEHIND_FENCE][kind][lane] = level;
    if (device) own[BEHIND_DEVICE_FENCE][kind][lane] = level;
    own[BEHIND_BOTH][kind][lane] = own[BEHIND_DEVICE_FENCE][kind][lane];
  }
}

/* ---- a fence acquires what atomics before it have observed */
static int learn_rows(EmuWarp* W, int lane, const Rows* rows) {
  EmuRun* run = run_of(W);
  const int device = BEHIND_DEVICE_FENCE * run->layer;
  const unsigned* known = known_by(W, lane);
  unsigned* clocks = run->fencing->rows;
  int adds = 0;
  memset(clocks, 0, sizeof(unsigned) * (size_t)run->slots);
  for (int i = 0; rows && i < rows->slots; ++i) {
    clocks[i] = clock_in(rows, 0, i);
    clocks[device + i] = clock_in(rows, 1, i);
    adds |= clocks[i] > known[i] || clocks[device + i] > known[device + i];
  }
  if (adds) learn(W, clocks, 1u << lane);
  return adds;
}

static int is_acquired(const EmuRun* run, const Observer* by, Seen seen, int device) {
  const Fencing* all = run->fencing;
  for (int i = 0; i < all->acquired_count; ++i) {
    const Acquired* a = &all->acquired[i];
    if (a->seen.location == seen.location && a->seen.number >= seen.number &&
        a->device >= device && ordered(run, by, a->stamp))
      return 1;
  }
  return 0;
}

static void acquire(EmuWarp* W, int lane, int device) {
  EmuRun* run = run_of(W);
  Fencing* all = run->fencing;
  for (int again = 1; again;) { /* what is learned may say that more was observed before */
    again = 0;
    for (int i = 0; i < all->observed_count; ++i) {
      const Observer by = lane_observer(W, lane, 0);
      if (ordered(run, &by, all->observed[i].stamp))
        again |= learn_rows(W, lane, all->observed[i].inside);
    }
  }
  const Observer by = lane_observer(W, lane, 0);
  for (int i = 0; i < all->observed_count; ++i) {
    const Observed* o = &all->observed[i];
    if (!ordered(run, &by, o->stamp) || is_acquired(run, &by, o->seen, device)) continue;
    all->acquired =
        with_room(all->acquired, all->acquired_count, &all->acquired_room, sizeof(Acquired));
    all->acquired[all->acquired_count++] = (Acquired){emu_me(W, lane), o->seen, device};
  }
}

/* FENCE(BLOCK) and FENCE(DEVICE), of each lane for itself. */
void fence_memory(EmuWarp* W, unsigned mask, int device) {
  EmuRun* run = run_of(W);
  run->fencing->fenced = 1;
  for (int l = 0; l < W->lanes; ++l)
    if (mask >> l & 1) acquire(W, l, device);
  if (mask == W->full)
    fence_known(run, W->known, device);
  else
    part(W, mask);
  for (int i = 0; i < W->view_count; ++i)
    if (W->views[i].mask & mask) fence_known(run, W->views[i].known, device);
  for (int l = 0; l < W->lanes; ++l)
    if (mask >> l & 1) fence_own(W, l, device);
  tick(W);
}

/* ---- an atomic observes, and releases what was fenced before it */
static void observe(EmuRun* run, int number, EmuStamp me) {
  Fencing* all = run->fencing;
  Location* at = location_at(all, number);
  Rows* inside = at->block == run->blocks->writer ? at->inside : NULL;
  const int own = at->count && at->released[at->count - 1].block == run->blocks->writer;
  if (!inside && at->count == own) return;
  const EmuStamp when = me & ~((EmuStamp)0xffff << EMU_PLACE_SHIFT);
  for (int i = at->observed; i; i = all->observed[i - 1].earlier) {
    Observed* same = &all->observed[i - 1];
    if (same->stamp != when) continue;
    if (inside) ++inside->users;
    drop_rows(same->inside);
    same->inside = inside;
    same->seen.number = at->number;
    return;
  }
  all->observed =
      with_room(all->observed, all->observed_count, &all->observed_room, sizeof(Observed));
  all->observed[all->observed_count++] =
      (Observed){when, {number, at->number}, at->observed, inside};
  at->observed = all->observed_count;
  if (inside) ++inside->users;
}

/* What a lane has fenced, in layers of `rows`. */
static void collect(EmuWarp* W, int lane) {
  EmuRun* run = run_of(W);
  const unsigned* known = known_by(W, lane);
  unsigned* rows = run->fencing->rows;
  memcpy(rows, known, sizeof(unsigned) * (size_t)run->slots);
  for (int layer = BEHIND_FENCE; layer < LAYERS; ++layer)
    for (int kind = 0; kind < kinds_of(W); ++kind) {
      const unsigned level = run->fencing->own[W->warp][layer][kind][lane];
      unsigned* row = rows + layer * run->layer;
      if (row[slot_of(run, kind, W->warp)] < level)
        raise_to(&row[elect(run, kind, W->warp, lane)], level);
    }
}

static int is_empty(const unsigned* row, int slots) {
  int i = 0;
  while (i < slots && !row[i]) ++i;
  return i == slots;
}

/* What was acquired before the fences that are released goes with them. */
static void pass_on(EmuRun* run, Released* released, const unsigned* clocks) {
  const Fencing* all = run->fencing;
  for (int i = 0; i < all->acquired_count; ++i) {
    const Acquired* a = &all->acquired[i];
    int k = 0;
    if (!a->device || a->seen.location < 0 ||
        !covers(run, clocks, run->used_slots, run->elected, a->stamp))
      continue;
    while (k < released->seen_count && released->seen[k].location != a->seen.location) ++k;
    if (k == released->seen_count) {
      released->seen = with_room(released->seen, k, &released->seen_room, sizeof(Seen));
      released->seen[released->seen_count++] = a->seen;
    }
    raise_to(&released->seen[k].number, a->seen.number);
  }
}

static void release_inside(EmuRun* run, Location* at) {
  const unsigned* rows = run->fencing->rows;
  const unsigned* both[] = {rows + BEHIND_FENCE * run->layer, rows + BEHIND_BOTH * run->layer};
  if (at->block != run->blocks->writer) {
    drop_rows(at->inside);
    at->inside = NULL;
    at->block = run->blocks->writer;
  }
  at->inside = joined(at->inside, 2, both, run->used_slots);
}

static void release_outside(EmuRun* run, Location* at) {
  const unsigned* row = run->fencing->rows + BEHIND_DEVICE_FENCE * run->layer;
  if (!at->count || at->released[at->count - 1].block != run->blocks->writer) {
    at->released = with_room(at->released, at->count, &at->room, sizeof(Released));
    at->released[at->count++] = (Released){.block = run->blocks->writer};
  }
  Released* released = &at->released[at->count - 1];
  released->number = at->number;
  released->clocks = joined(released->clocks, 1, &row, run->used_slots);
  pass_on(run, released, row);
  run->fencing->released = 1;
}

/* An atomic of a lane.  taken: does anybody want the value that it read? */
void synchronise(EmuWarp* W, AccessList* list, Access* atomic, int shared, int taken) {
  EmuRun* run = run_of(W);
  Fencing* all = run->fencing;
  if (!list->location) list->location = new_location(all, shared);
  Location* at = location_at(all, list->location);
  if (taken) observe(run, list->location, atomic->stamp);
  atomic->number = ++at->number;
  if (!all->fenced) return;
  collect(W, EMU_LANE(atomic->stamp));
  if (is_empty(all->rows + BEHIND_FENCE * run->layer, run->used_slots)) return;
  atomic->released = TO_BLOCK;
  release_inside(run, at);
  if (shared || is_empty(all->rows + BEHIND_DEVICE_FENCE * run->layer, run->used_slots)) return;
  atomic->released = TO_DEVICE;
  release_outside(run, at);
}

/* ---- is an access ordered before somebody by what he, or the one he has it from, acquired? */
static void reach(Fencing* all, Seen seen) {
  all->path = with_room(all->path, all->path_count, &all->path_room, sizeof(Seen));
  all->path[all->path_count++] = seen;
}

static int is_reached(const Fencing* all, Seen seen) {
  for (int i = 0; i < all->path_count; ++i)
    if (all->path[i].location == seen.location && all->path[i].number >= seen.number) return 1;
  return 0;
}

static const Released* released_by(Location* at, unsigned block) {
  for (int tried = 0; tried < at->count; ++tried) {
    const Released* released = &at->released[at->found];
    if (released->block == block) return released;
    at->found = at->found + 1 == at->count ? 0 : at->found + 1;
  }
  return NULL;
}

static int was_released(const EmuRun* run, Seen seen, Access access) {
  Location* at = location_at(run->fencing, seen.location);
  const Released* by = seen.location > 0 ? released_by(at, access.block) : NULL;
  return by && by->number <= seen.number &&
         covers(run, by->clocks->known, by->clocks->slots, run->fencing->elected[access.block - 1],
                access.stamp);
}

static void follow(Fencing* all, Seen seen) {
  const Location* at = location_at(all, seen.location);
  for (int i = 0; i < at->count; ++i) {
    const Released* released = &at->released[i];
    for (int k = 0; k < released->seen_count && released->number <= seen.number; ++k)
      if (!is_reached(all, released->seen[k])) reach(all, released->seen[k]);
  }
}

int handed_over(const EmuRun* run, const Observer* by, int location, Access access) {
  Fencing* all = run->fencing;
  const int foreign = access.block && access.block != run->blocks->writer;
  const int number = access.released >= (foreign ? TO_DEVICE : TO_BLOCK) ? location : 0;
  all->path_count = 0;
  for (int i = 0; i < all->acquired_count; ++i) {
    const Acquired* a = &all->acquired[i];
    if ((foreign ? a->device : a->seen.location == number) && !is_reached(all, a->seen) &&
        ordered(run, by, a->stamp))
      reach(all, a->seen);
  }
  for (int i = 0; i < all->path_count; ++i) {
    const Seen seen = all->path[i];
    if (seen.location == number && access.number <= seen.number) return 1;
    if (!foreign) continue;
    if (was_released(run, seen, access)) return 1;
    follow(all, seen);
  }
  return 0;
}
