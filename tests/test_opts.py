"""Opts as data: what they hold, how they travel, and what cannot be said with them."""

from __future__ import annotations

import json
import random

import pytest

from tests.random_kernels import random_case
from tests.three_ways import random_opts
from uopc.errors import UsageError
from uopc.opts import AxisOpts, Opts

SOME = Opts(
    gpu=True,
    local={1: 16, 0: 8},
    upcast={0: 2},
    vector={1: 4},
    blocks={2: 4},
    lanes=(1, 0),
    keep="shared",
    early=False,
)


@pytest.mark.parametrize(
    "opts", [Opts(), Opts(gpu=True), SOME, Opts(thread=0, loop={0: 2}, merge=(1, 2))]
)
def test_json_and_back(opts: Opts) -> None:
    text = opts.to_json()
    assert Opts.from_json(text) == opts and "\n" not in text
    assert hash(Opts.from_json(text)) == hash(opts)


@pytest.mark.parametrize("seed", range(60))
def test_random_opts_travel(seed: int) -> None:
    rng = random.Random(seed)
    opts = random_opts(rng, random_case(rng, most=300).bodies, gpu=bool(seed % 2))
    assert Opts.from_json(opts.to_json()) == opts
    assert eval(repr(opts)) == opts


def test_the_order_of_a_mapping_does_not_count() -> None:
    a, b = Opts(gpu=True, local={0: 8, 1: 16}), Opts(gpu=True, local={1: 16, 0: 8})
    assert a == b and a.to_json() == b.to_json() and repr(a) == repr(b)


def test_only_what_differs_is_written() -> None:
    assert json.loads(Opts(gpu=True, unroll=4).to_json()) == {"gpu": True, "unroll": 4}
    assert Opts().to_json() == "{}"


@pytest.mark.parametrize(
    ("opts", "size", "reduced", "want"),
    [
        (Opts(), 10, False, AxisOpts(loop=10)),
        (Opts(upcast={0: 4}), 10, False, AxisOpts(loop=3, upcast=4)),
        (Opts(gpu=True), 10, False, AxisOpts(blocks=10)),
        (
            Opts(gpu=True, local={0: 32}, vector={0: 4}),
            1000,
            False,
            AxisOpts(blocks=8, local=32, vector=4),
        ),
        (Opts(gpu=True, blocks={0: 4}), 10, False, AxisOpts(blocks=4, loop=3)),
        (Opts(gpu=True, loop={0: 3}), 10, False, AxisOpts(blocks=4, loop=3)),
        (Opts(gpu=True, local={0: 32}), 1000, True, AxisOpts(loop=32, local=32)),
        (Opts(gpu=True, unroll=4), 10, True, AxisOpts(loop=3, upcast=4)),
        (Opts(gpu=True, unroll=4, upcast={0: 2}), 10, True, AxisOpts(loop=5, upcast=2)),
        (Opts(gpu=True, unroll=4), 10, False, AxisOpts(blocks=10)),
        (Opts(thread=0), 10, False, AxisOpts(blocks=10)),
        (Opts(thread=0, loop={0: 4}), 10, False, AxisOpts(blocks=3, loop=4)),
        (Opts(tile={0: 4}), 10, True, AxisOpts(loop=3, tile=4)),
        (Opts(gpu=True, local={0: 32}), 5, False, AxisOpts(local=32)),
    ],
)
def test_the_rest_of_an_axis(opts: Opts, size: int, reduced: bool, want: AxisOpts) -> None:
    got = opts.axis(0, size, reduced)
    assert got == want
    digits = got.blocks * got.loop * got.tile * got.upcast * got.local * got.vector
    assert digits >= size


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"local": {0: 8}}, "Opts.local={0: 8} needs gpu=True: only a GPU has threads of a block"),
        ({"blocks": {0: 8}}, "Opts.blocks={0: 8} needs gpu=True; on a CPU use thread"),
        ({"gpu": True, "thread": 0}, "Opts.thread=0 is for CPU kernels; with gpu=True use local"),
        ({"gpu": True, "blocks": {0: 2}, "loop": {0: 2}}, "Opts: axis 0 has both blocks and loop"),
        ({"upcast": {0: 0}}, "Opts.upcast: axis 0 with size 0; both count from 0 and 1"),
        ({"vector": {-1: 4}}, "Opts.vector: axis -1 with size 4; both count from 0 and 1"),
        ({"keep": "l2"}, "Opts.keep is 'l2'; it is 'reg', 'shared' or 'none'"),
        ({"keep": "shared"}, "Opts.keep='shared' needs gpu=True"),
        ({"unroll": 0}, "Opts.unroll is 0; it is at least 1"),
    ],
)
def test_what_cannot_be(fields: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Opts(**fields)  # type: ignore[arg-type]  # wrong on purpose
    assert str(caught.value).startswith(text)


def test_unknown_fields_of_a_text() -> None:
    with pytest.raises(UsageError, match="Opts has no field 'warps'; it has blocks, "):
        Opts.from_json('{"gpu": true, "warps": 4}')


def test_opts_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Opts().gpu = True  # type: ignore[misc]  # it is frozen
