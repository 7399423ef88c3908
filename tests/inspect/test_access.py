"""The access report: counts beside the emulator, lines and origins, words for patterns."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.access_table import BY_NAME
from tests.kernels import along, columns, param, product, softmax
from tests.random_kernels import random_case
from tests.suite import ROUNDED, SUITE, bodies_of
from tests.three_ways import random_opts
from uopc.dtype import dtypes
from uopc.errors import TargetError, UsageError
from uopc.inspect import warps
from uopc.inspect.access import Listing, listing, pattern
from uopc.inspect.explain import passes
from uopc.inspect.records import AccessReport, How
from uopc.inspect.sites import sites
from uopc.inspect.warps import Counts, read_at_once
from uopc.launches import random_arrays
from uopc.observing import observed
from uopc.opts import Opts
from uopc.pipeline import Kernel, Step, compile
from uopc.render.emulate import render_emulated
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

#: threads of a launch, and statements of all of them, that are emulated one by one
MOST_THREADS, MOST_WORK = 1 << 12, 1 << 17
FIGURES = ("requests", "threads", "sectors", "least_sectors", "wavefronts", "least_wavefronts")


def of_step(step: Step, found: dict[UOp, Counts] | None = None) -> Listing:
    return listing(step.program, step.source.name, step.source.target, found)


def listed(body: UOp | list[UOp], opts: Opts | None = None, target: str = "sm_80") -> Listing:
    """Of the only launch of a body."""
    (step,) = compile(body, opts, target).steps
    return of_step(step)


def by_memory(found: Listing) -> dict[tuple[str, str], AccessReport]:
    return {(a.op, a.memory): a for a in found.accesses}


def figures(c: AccessReport | Counts) -> dict[str, int]:
    return {name: getattr(c, name) for name in FIGURES}


def is_small(kernel: Kernel) -> bool:
    programs = [(s.program, s.source) for s in kernel.steps]
    threads = [p.launch.threads * prod(p.launch.grid) for p, _ in programs]
    work = [render_emulated(p, s.name, target=s.target).work for p, s in programs]
    return max(threads) <= MOST_THREADS and sum(work) <= MOST_WORK


def check_counts(kernel: Kernel, arrays: Sequence[Any]) -> int:
    """Every access that is counted exactly is what the emulator saw; how many were."""
    checked = 0
    seen = observed(kernel, *arrays, most_threads=1 << 17)
    for step, of_launch in zip(kernel.steps, seen, strict=True):
        every = sites(step.program)
        again = {s.node for n, s in enumerate(every) if s.node in {t.node for t in every[:n]}}
        for a, site in zip(of_step(step).accesses, every, strict=True):
            if site.node not in of_launch:  # a copy, or matrices: the emulator has no lanes of it
                continue
            if a.how is How.UNKNOWN:
                said = of_step(step, of_launch).accesses[a.number]
                assert said.how is How.EMULATED
                assert figures(said) == figures(of_launch[site.node])
                continue
            assert a.how is How.EXACT
            if site.node in again:  # at two places of the text: the emulator tells both together
                continue
            text, saw = figures(a), figures(of_launch[site.node])
            if read_at_once(site):  # by a GPU; the emulator reads one by one
                text |= {name: saw[name] for name in ("wavefronts", "least_wavefronts")}
            assert text == saw, (str(step.opts), a)
            checked += 1
    return checked


# ---- beside the emulator
@pytest.mark.parametrize("first", range(0, 240, 20))
def test_random_kernels_as_the_emulator_saw_them(first: int) -> None:
    checked = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        case = random_case(rng, 300)
        try:
            opts = random_opts(rng, case.bodies, True)
            kernel = compile(list(case.bodies), opts, "sm_90a")
        except (UsageError, TargetError):  # Opts that are no answer
            continue
        if is_small(kernel):
            checked += check_counts(kernel, [case.arrays[s] for s in sorted(case.arrays)])
    assert checked > 20


@pytest.mark.parametrize(
    "name",
    [
        *("(3, 100)", "one", "prime 31", "prime 97", "pad flip shrink", "normalised 5x777"),
        *("two outputs", "two reductions", "softmax numerator 16x32"),
    ],
)
def test_kernels_of_the_suite(name: str) -> None:
    bodies = bodies_of({**SUITE, **ROUNDED}[name]())
    kernel = compile(bodies, None, "sm_90a")
    assert is_small(kernel)
    assert check_counts(kernel, random_arrays(kernel, 0)) >= 2


@pytest.mark.parametrize(
    ("body", "opts"),
    [
        (product(17, 9, 12), Opts(gpu=True, local={0: 4, 1: 8}, upcast={0: 2})),
        (product(16, 16, 16), Opts(gpu=True, local={0: 16, 1: 16}, lanes=(0, 1))),
        (param(0, 9, 70).argmin(1), Opts(gpu=True, local={1: 32})),
        (param(0, 40, 33).permute((1, 0)) * 2.0, Opts(gpu=True, local={0: 8, 1: 8}, turn={0: 1})),
        (softmax(param(0, 3, 200)), Opts(gpu=True, local={1: 64}, keep="shared")),
        (param(0, 70).cast(dtypes.f64).pad(((3, 2),)) * 2.0, Opts(gpu=True, vector={0: 2})),
    ],
)
def test_kernels_by_opts_of_our_own(body: UOp, opts: Opts) -> None:
    kernel = compile(body, opts, "sm_90a")
    assert check_counts(kernel, random_arrays(kernel, 0)) >= 2


@pytest.mark.parametrize(
    ("body", "opts"),
    [
        (param(0, 3000).reduce(Ops.ADD, 1), Opts(gpu=True, blocks={0: 5}, local={0: 64})),
        (param(0, 5, 700).reduce(Ops.MAX, 1), Opts(gpu=True, blocks={1: 3}, local={1: 32})),
        (columns(param(0, 100, 40)), Opts(gpu=True, blocks={1: 4}, local={0: 40, 1: 8})),
    ],
)
def test_the_fold_of_the_last_block(body: UOp, opts: Opts) -> None:
    """Whichever block draws the last ticket, one does, and it does the same."""
    kernel = compile(body, opts, "sm_80")
    assert is_small(kernel)
    assert any("ATOMIC" in {a.op for a in of_step(s).accesses} for s in kernel.steps)
    assert check_counts(kernel, random_arrays(kernel, 0)) >= 6


def test_what_is_sampled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    body = param(0, 1000, 40).permute((1, 0)).reshape((40_000,)) * 2.0
    opts = Opts(gpu=True, local={0: 32})
    exact = by_memory(listed(body, opts))["LOAD", "p0"]
    monkeypatch.setattr(warps, "MOST_LANES", 1 << 12)
    sample = by_memory(listed(body, opts))["LOAD", "p0"]
    assert (exact.how, sample.how) == (How.EXACT, How.SAMPLED)
    assert sample.sectors == pytest.approx(exact.sectors, rel=0.1)


# ---- where data decides
def gathered() -> UOp:
    table, index = param(0, 100), param(1, 64, dtype=dtypes.i32)
    return table.gather((~0,), index)


def test_data_decides_without_arrays() -> None:
    found = by_memory(listed(gathered()))
    unknown = found["LOAD", "p0"]
    assert unknown.how is How.UNKNOWN and figures(unknown) == dict.fromkeys(FIGURES, 0)
    assert unknown.pattern == "" and unknown.lanes == ()
    assert found["LOAD", "p1"].how is How.EXACT


@pytest.mark.parametrize(
    ("index", "sectors", "word"),
    [
        (np.arange(64), 8, "contiguous"),
        (np.zeros(64), 2, "broadcast"),
        (np.arange(64) * 8 % 100, 26, "scattered"),
    ],
)
def test_data_decides_with_arrays(index: np.ndarray[Any, Any], sectors: int, word: str) -> None:
    kernel = compile(gathered(), target="sm_80")
    arrays = [np.arange(100, dtype=np.float32), index.astype(np.int32)]
    (counts,) = observed(kernel, *arrays)
    found = by_memory(of_step(kernel.steps[0], counts))["LOAD", "p0"]
    assert (found.how, found.requests, found.threads) == (How.EMULATED, 2, 64)
    assert found.sectors == sum(len(set(half // 8)) for half in index.reshape(2, 32))
    assert found.sectors == sectors and found.pattern == word


# ---- lines, origins, nodes
SOFTMAX = softmax(param(0, 33, 1000))


@pytest.mark.parametrize(
    "name", ["add_f32", "padded", "transposed_odd", "softmax_f32", "sum_all", "product_fma"]
)
def test_the_line_of_an_access_has_it(name: str) -> None:
    for step in BY_NAME[name].steps():
        found = of_step(step)
        for a in found.accesses:
            line = found.lines[a.line - 1]
            assert a.number in line.accesses
            pattern = rf"\b{a.memory}\b"
            assert re.search(pattern, line.text), (a, line.text)
        every = [n for line in found.lines for n in line.accesses]
        assert sorted(every) == [a.number for a in found.accesses]


@pytest.mark.parametrize("name", ["product_mma", "product_wgmma", "softmax_cluster", "cumsum"])
def test_lines_of_copies_and_matrices(name: str) -> None:
    """A copy's line names where it goes from or to; a tensor copy goes by its map."""
    for step in BY_NAME[name].steps():
        found = of_step(step)
        for a in found.accesses:
            text = found.lines[a.line - 1].text
            assert a.memory in text or (a.op == "BULK" and f"map{a.slot}" in text), (a, text)


def test_origins_are_the_users_lines() -> None:
    x, y = param(0, 1024), param(1, 1024)
    first = inspect.currentframe()
    assert first is not None
    added = x + y
    line = first.f_lineno - 1
    found = listed(added)
    store = by_memory(found)["STORE", "p2"]
    assert store.origins[0] == f"tests/inspect/test_access.py:{line}"
    assert by_memory(found)["LOAD", "p0"].origins[0].startswith("tests/kernels.py:")
    lines = [x for x in found.lines if f"tests/inspect/test_access.py:{line}" in x.origins]
    assert store.number in {n for x in lines for n in x.accesses}


@pytest.mark.parametrize("body", [SOFTMAX, product(64, 64, 64), param(0, 1003) * 2.0])
def test_nodes_are_lines_of_the_last_graph(body: UOp) -> None:
    """A line with a LOAD comes from a node whose text is a LOAD of that memory."""
    (step,) = compile(body, target="sm_80").steps
    graph = passes(step)[-1].text.splitlines()
    found = of_step(step)
    numbers = {n for line in found.lines for n in line.nodes}
    assert numbers <= set(range(len(graph)))
    for a in found.accesses:
        nodes = found.lines[a.line - 1].nodes
        accesses = [graph[n] for n in nodes if re.search(rf"\b{a.op}\b", graph[n])]
        assert accesses, (a, [graph[n] for n in nodes])
    loops = [line for line in found.lines if line.text.lstrip().startswith("for (")]
    for line in loops:
        assert any(" = RANGE " in graph[n] for n in line.nodes), line
    assert not any(line.nodes for line in found.lines if line.text.strip() in ("}", ""))


def test_the_text_is_the_kernels_own() -> None:
    """With the user's lines as comments, which what is compiled has not."""
    (step,) = compile(SOFTMAX, target="sm_80").steps
    text = [line.text for line in of_step(step).lines]
    bare = [re.sub(r"\s*// [^ ]+:\d+.*$", "", line) for line in text]
    assert bare == str(step.cuda_source).splitlines()
    assert any("// tests/kernels.py:" in line for line in text)


# ---- one access in words
def test_gates_and_indices_are_the_sources() -> None:
    found = listed(param(0, 1003) * 2.0, Opts(gpu=True, local={0: 128}))
    (load, store) = found.accesses
    assert load.gate and store.gate
    for a in (load, store):
        text = found.lines[a.line - 1].text
        assert f"{a.memory}[{a.index}]" in text
    assert load.axis.endswith(" * 1") and load.dtype == "f32" and (load.slot, store.slot) == (0, 1)


def test_the_axis_of_threads() -> None:
    def axis(body: UOp, **digits: Any) -> str:
        return by_memory(listed(body, Opts(gpu=True, **digits)))["LOAD", "p0"].axis

    x = param(0, 64, 64)
    assert axis(x * 2.0, local={1: 32}).endswith(" * 1")
    assert axis(x.permute((1, 0)) * 2.0, local={1: 32}).endswith(" * 64")
    assert axis(x.flip((1,)) * 2.0, local={1: 32}).endswith(" * -1")
    assert axis(x * 2.0, local={1: 8}, vector={1: 4}).endswith(" * 4")
    rows = along(param(0, 64), param(1, 64, 64))
    assert axis(rows + param(1, 64, 64), local={1: 32}) == ""  # threads do not move it
    assert axis(x.reshape((4096,)).shrink(((3, 4000),)).reshape((7, 571)) * 2.0, local={1: 32})


@pytest.mark.parametrize(
    ("lanes", "itemsize", "width", "words"),
    [
        ([], 4, 4, ""),
        ([None] * 32, 4, 4, ""),
        ([None, 8, None], 4, 4, "one lane"),
        ([8] * 32, 4, 4, "broadcast"),
        (range(0, 128, 4), 4, 4, "contiguous"),
        (range(0, 512, 16), 4, 16, "contiguous"),
        (range(0, 512, 16), 4, 4, "stride 4 (16 bytes)"),
        (range(124, -4, -4), 4, 4, "contiguous backwards"),
        (range(512, 0, -16), 4, 4, "stride -4 (-16 bytes)"),
        ([0, 4, 8, 64, 68, 72], 4, 4, "rows of 3 lanes, contiguous, 64 bytes apart"),
        ([0, 4, 8, 64, 68], 4, 4, "rows of 3 lanes, contiguous, 64 bytes apart"),
        ([0, 0, 4, 4, 8, 8], 4, 4, "rows of 2 lanes, all at one place, 4 bytes apart"),
        ([0, 4, 0, 4], 4, 4, "rows of 2 lanes, contiguous, 0 bytes apart"),
        ([0, 4, 8, 64, 70, 72], 4, 4, "scattered"),
        ([0, 4, 8, 64, 68, 72, 80, 84, 88], 4, 4, "scattered"),
        ([0, 100, 20, 4], 4, 4, "scattered"),
        ([None, 4, None, 12, None, 20], 4, 4, "stride 2 (8 bytes)"),  # of those that are active
        ([0, 4, 8, 12, None, None], 4, 4, "contiguous"),
    ],
)
def test_patterns_in_words(
    lanes: Sequence[int | None], itemsize: int, width: int, words: str
) -> None:
    assert pattern(lanes, itemsize, width) == words


# ---- bytes
def test_touched_bytes() -> None:
    x = param(0, 1000, 64)

    def load(body: UOp, **digits: Any) -> AccessReport:
        return by_memory(listed(body, Opts(gpu=True, **digits)))["LOAD", "p0"]

    whole = load(x * 2.0, local={1: 64})
    assert whole.touched_bytes == whole.fetched_bytes == whole.wanted_bytes == 256_000
    assert whole.block_bytes == whole.block_fetched_bytes == 256
    assert (whole.first_byte, whole.end_byte) == (0, 256_000)
    column = load(x.shrink(((0, 1000), (5, 6))).reshape((1000,)) * 2.0, local={0: 50})
    assert (column.touched_bytes, column.fetched_bytes) == (4000, 64_000)
    assert (column.block_bytes, column.block_fetched_bytes) == (200, 1600)
    assert (column.first_byte, column.end_byte) == (20, 999 * 256 + 24)


def test_bytes_that_many_threads_ask_for() -> None:
    """A row that is added to every row: wanted 1,000 times, touched once."""
    row = param(0, 1, 64).expand((1000, 64))
    found = by_memory(listed(row + param(1, 1000, 64), Opts(gpu=True, local={1: 64})))
    assert found["LOAD", "p0"].touched_bytes == 256
    assert found["LOAD", "p0"].wanted_bytes == 256_000


def test_derived_figures() -> None:
    found = by_memory(listed(param(0, 64, 64).permute((1, 0)) * 2.0, Opts(gpu=True, local={1: 32})))
    load = found["LOAD", "p0"]
    assert load.sectors_per_request == 32.0 and load.least_per_request == 4.0
    assert load.used == 4 / 32
    assert (load.conflicts, load.conflict_degree) == (0, 1.0)
    nothing = AccessReport(*([0] * len(fields(AccessReport))))  # type: ignore[arg-type]  # all zero
    assert nothing.sectors_per_request == 0.0 and nothing.used == 1.0
