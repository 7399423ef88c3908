/* Happens-before: what a warp and its lanes know, and how knowledge travels. */
#include "emulated_runtime.h"

int slot_of(const EmuRun* run, int kind, int warp) { return kind * run->warps + warp; }

/* The slot of a lane that releases alone; 0 where it never has. */
static int elected(const EmuRun* run, int kind, int warp, int lane) {
  return run->elected[(kind * run->warps + warp) * EMU_LANES + lane];
}

int elect(EmuRun* run, int kind, int warp, int lane) {
  short* slot = &run->elected[(kind * run->warps + warp) * EMU_LANES + lane];
  if (!*slot) {
    *slot = (short)run->used_slots++;
    run->elects[*slot] = (Elected){(short)slot_of(run, kind, warp), (short)warp, (short)lane};
  }
  return *slot;
}

void join(const EmuRun* run, unsigned* into, const unsigned* from) {
  const int slots = run->slots, layer = run->layer, used = run->used_slots;
  for (int first = 0; first < slots; first += layer)
    for (int i = first; i < first + used; ++i) into[i] = into[i] < from[i] ? from[i] : into[i];
}

static EmuView* view_of(const EmuWarp* W, int lane) {
  for (int i = 0; i < W->view_count; ++i)
    if (W->views[i].mask >> lane & 1) return &W->views[i];
  return NULL;
}

unsigned* known_by(const EmuWarp* W, int lane) {
  EmuView* view = W->view_count && lane >= 0 ? view_of(W, lane) : NULL;
  return view ? view->known : W->known;
}

Observer lane_observer(const EmuWarp* W, int lane, int place) {
  Observer by = {.warp = W->warp, .lane = lane, .agent = BY_THREAD, .place = place};
  by.known = known_by(W, lane);
  by.clock = W->clock;
  if (W->groups && lane >= 0)
    for (int kind = OF_FENCED; kind < KINDS; ++kind) by.own[kind] = W->groups->clocks[kind][lane];
  return by;
}

/* Is what a stamp says, by lane `lane` of a warp, known in a slot of this kind? */
static int known_in(const EmuRun* run, const Observer* by, int kind, int warp, int lane,
                    int several, unsigned clock) {
  if (by->known[slot_of(run, kind, warp)] >= clock) return 1;
  if (several) return 0;
  if (warp == by->warp && lane == by->lane &&
      clock <= (kind == OF_THREAD ? by->clock : by->own[kind]))
    return 1;
  const int slot = elected(run, kind, warp, lane);
  return slot && by->known[slot] >= clock;
}

int ordered(const EmuRun* run, const Observer* by, EmuStamp stamp) {
  const int slot = EMU_SLOT(stamp);
  const unsigned clock = EMU_CLOCK(stamp);
  if (!stamp) return 1;
  if (slot >= run->mma_slots) return by->known[slot] >= clock;
  return known_in(run, by, slot / run->warps, slot % run->warps, EMU_LANE(stamp),
                  (stamp & EMU_SEVERAL) != 0, clock);
}

/* Lies a fence between an ordinary access (which is ordered) and an asynchronous one? */
int fenced(const EmuRun* run, const Observer* by, EmuStamp stamp) {
  const int slot = EMU_SLOT(stamp), kind = slot / run->warps;
  if (!stamp || slot >= run->mma_slots || (kind != OF_THREAD && kind != OF_COPIES)) return 1;
  return known_in(run, by, kind + 1, slot % run->warps, EMU_LANE(stamp), (stamp & EMU_SEVERAL) != 0,
                  EMU_CLOCK(stamp));
}

/* How far all lanes of a warp have come, in a kind; lanes with nothing left are no limit. */
static unsigned lane_level(const EmuWarp* W, int kind, int lane) {
  const EmuGroups* groups = W->groups;
  const unsigned level = groups->clocks[kind][lane];
  if (kind == OF_FENCED) return level;
  const Groups* engine = kind <= OF_COPIES_FENCED ? &groups->copies : &groups->bulk;
  return engine->last[lane] > level ? level : engine->commits;
}

static void publish_engines(EmuWarp* W, unsigned* clocks, unsigned mask) {
  EmuRun* run = run_of(W);
  for (int kind = OF_FENCED; kind < KINDS; ++kind) {
    unsigned least = 0;
    unsigned* all = &clocks[slot_of(run, kind, W->warp)];
    if (mask == W->full) {
      least = ~0u;
      for (int l = 0; l < W->lanes; ++l)
        if (lane_level(W, kind, l) < least) least = lane_level(W, kind, l);
      if (*all < least) *all = least;
    }
    for (int l = 0; l < W->lanes; ++l) {
      if (!(mask >> l & 1) || W->groups->clocks[kind][l] <= least) continue;
      const int slot = elect(run, kind, W->warp, l);
      if (clocks[slot] < W->groups->clocks[kind][l]) clocks[slot] = W->groups->clocks[kind][l];
    }
  }
}

/* Release: what these lanes have done and know goes into a clock vector. */
void publish(EmuWarp* W, unsigned* clocks, unsigned mask) {
  EmuRun* run = run_of(W);
  if (mask == W->full) {
    if (clocks != W->known) join(run, clocks, W->known);
    for (int i = 0; i < W->view_count; ++i) join(run, clocks, W->views[i].known);
    clocks[slot_of(run, OF_THREAD, W->warp)] = W->clock;
  } else {
    for (int l = 0; l < W->lanes; ++l) {
      if (!(mask >> l & 1)) continue;
      const int slot = elect(run, OF_THREAD, W->warp, l);
      join(run, clocks, known_by(W, l));
      clocks[slot] = W->clock;
    }
  }
  if (W->groups) publish_engines(W, clocks, mask);
  if (run->fencing) publish_fences(W, clocks, mask);
}

static void changed(EmuWarp* W) {
  if (W->snapshot) drop_snapshot(W->snapshot);
  W->snapshot = NULL;
}

/* Lanes that learn apart from others get a view of their own: views partition the lanes. */
static void separate(EmuWarp* W, unsigned mask, const unsigned* known) {
  EmuRun* run = run_of(W);
  EmuView* view = &W->views[W->view_count++];
  view->mask = mask;
  view->known = malloc(sizeof(unsigned) * (size_t)run->slots);
  memcpy(view->known, known, sizeof(unsigned) * (size_t)run->slots);
}

/* Some lanes have views that they share with no others. */
void part(EmuWarp* W, unsigned mask) {
  unsigned rest = mask;
  for (int i = 0, count = W->view_count; i < count; ++i) {
    EmuView* view = &W->views[i];
    const unsigned inside = view->mask & mask;
    if (!inside) continue;
    rest &= ~inside;
    if (inside == view->mask) continue;
    view->mask &= ~inside;
    separate(W, inside, view->known);
  }
  if (rest) separate(W, rest, W->known);
}

/* Acquire: these lanes know what a clock vector says. */
void learn(EmuWarp* W, const unsigned* clocks, unsigned mask) {
  EmuRun* run = run_of(W);
  changed(W);
  if (mask == W->full)
    join(run, W->known, clocks);
  else
    part(W, mask);
  for (int i = 0; i < W->view_count; ++i)
    if (W->views[i].mask & mask) join(run, W->views[i].known, clocks);
}

/* All lanes of the warp meet: each knows what every other did. */
void meet(EmuWarp* W) {
  changed(W);
  publish(W, W->known, W->full);
  for (int i = 0; i < W->view_count; ++i) free(W->views[i].known);
  W->view_count = 0;
  tick(W);
}

/* Lanes of a warp meet apart from the others. */
static void meet_apart(EmuWarp* W, unsigned mask) {
  EmuRun* run = run_of(W);
  unsigned* clocks = calloc((size_t)run->slots, sizeof(unsigned));
  publish(W, clocks, mask);
  learn(W, clocks, mask);
  tick(W);
  free(clocks);
}

/* What comes after is not known to those who know what came before. */
void tick(EmuWarp* W) { ++W->clock; }

EmuSnapshot* snapshot_of(EmuWarp* W, int lane) {
  const EmuRun* run = run_of(W);
  const int shared = known_by(W, lane) == W->known;
  if (shared && W->snapshot) {
    ++W->snapshot->users;
    return W->snapshot;
  }
  EmuSnapshot* snapshot = malloc(sizeof *snapshot + sizeof(unsigned) * (size_t)run->slots);
  memcpy(snapshot->known, known_by(W, lane), sizeof(unsigned) * (size_t)run->slots);
  snapshot->users = 1;
  if (shared) {
    ++snapshot->users;
    W->snapshot = snapshot;
  }
  return snapshot;
}

void drop_snapshot(EmuSnapshot* snapshot) {
  if (!--snapshot->users) free(snapshot);
}

/* ---- lanes of one warp */
void emu_members(EmuWarp* W, unsigned mask, int place, unsigned members) {
  const unsigned wanted = members & W->full;
  if (mask == wanted) return;
  report_details(run_of(W), fault_at(run_of(W), MEMBERS, place, -1, 0, W->warp, emu_first(mask)), 2,
                 (int[]){(int)wanted, (int)mask});
}

/* A lane takes from one that does not take part, or that does not exist.  Outside of 32 there is
 * none to take from, and a lane keeps its own. */
void emu_gives(EmuWarp* W, unsigned mask, int place, int from, int to) {
  if (from < 0 || from >= EMU_LANES || mask >> from & 1) return;
  report_details(run_of(W), fault_at(run_of(W), MEMBERS, place, -1, 0, W->warp, to), 3,
                 (int[]){(int)mask, (int)mask, from});
}

void emu_warp_barrier(EmuWarp* W, unsigned mask, int place, unsigned members) {
  if (!run_of(W)->checked) return;
  emu_members(W, mask, place, members);
  if ((mask & members) == W->full || mask == W->full)
    meet(W);
  else
    meet_apart(W, mask);
}
