"""Winners on disk: found again, by nobody else, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from uopc.config import Config
from uopc.dtype import dtypes
from uopc.kernel import USUAL, Numerics
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.runtime import winners
from uopc.runtime.winners import FOLDER, Winner
from uopc.target import target
from uopc.uop.node import UOp, buffer

CPU, GPU = target("cpu"), target("sm_90")
WINNER = Winner(Opts(vector={0: 8}), 1.5e-6, 2.5e-6)


def root(n: int = 64, name: str = "cpu") -> UOp:
    return choices(buffer(0, dtypes.f32, (n,)) * 2.0, name)[0].root


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(cache_dir=tmp_path)


def test_a_winner_comes_back(config: Config) -> None:
    assert winners.stored(root(), CPU, USUAL, config) is None
    path = winners.keep(root(), CPU, USUAL, WINNER, config)
    assert path is not None and path.parent.name == FOLDER
    assert winners.stored(root(), CPU, USUAL, config) == WINNER
    better = Winner(Opts(), 1e-6, 2.5e-6)
    winners.keep(root(), CPU, USUAL, better, config)
    assert winners.stored(root(), CPU, USUAL, config) == better
    winners.forget(root(), CPU, USUAL, config)
    winners.forget(root(), CPU, USUAL, config)
    assert winners.stored(root(), CPU, USUAL, config) is None


def test_another_kernel_has_none(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    winners.keep(root(), CPU, USUAL, WINNER, config)
    assert winners.stored(root(65), CPU, USUAL, config) is None
    assert winners.stored(root(), GPU, USUAL, config) is None
    assert winners.stored(root(), CPU, Numerics(exact_math=True), config) is None
    threads = Config(cache_dir=config.cache_dir, threads=3)
    assert winners.stored(root(), CPU, USUAL, threads) is None
    monkeypatch.setattr("uopc.runtime.nvrtc.nvrtc_identity", lambda: "another")
    assert winners.stored(root(), CPU, USUAL, config) == WINNER  # which NVRTC has no part in


def test_a_torn_or_foreign_file_is_none(config: Config) -> None:
    path = winners.keep(root(), CPU, USUAL, WINNER, config)
    assert path is not None
    whole = path.read_bytes()
    for data in (b"", whole[:20], whole[:-1], b"x" + whole[1:], whole.replace(b"1.5", b"9.5")):
        path.write_bytes(data)
        assert winners.stored(root(), CPU, USUAL, config) is None
        winners.keep(root(), CPU, USUAL, WINNER, config)
        assert winners.stored(root(), CPU, USUAL, config) == WINNER


@pytest.mark.parametrize("data", (b"{}", b"[1]", b"nonsense", b'{"opts": "{\\"none\\": 1}"}'))
def test_what_another_version_wrote_is_none(config: Config, data: bytes) -> None:
    path = winners.keep(root(), CPU, USUAL, WINNER, config)
    assert path is not None
    folder = winners._folder(config)
    folder.put(path.name, data)
    assert winners.stored(root(), CPU, USUAL, config) is None


def test_nothing_is_kept_where_nothing_is_cached(tmp_path: Path) -> None:
    off = Config(cache_dir=tmp_path, cache_mb=0)
    assert winners.keep(root(), CPU, USUAL, WINNER, off) is None
    assert winners.stored(root(), CPU, USUAL, off) is None and not list(tmp_path.iterdir())
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert winners.keep(root(), CPU, USUAL, WINNER, Config(cache_dir=blocked)) is None


_WRITE = """
import sys
from pathlib import Path
from tests.runtime.test_winners import CPU, USUAL, root
from uopc.config import Config
from uopc.opts import Opts
from uopc.runtime import winners
config, mine = Config(cache_dir=Path(sys.argv[1])), int(sys.argv[2])
for n in range(150):
    winners.keep(root(), CPU, USUAL, winners.Winner(Opts(vector={0: mine}), 1.0, 2.0), config)
    found = winners.stored(root(), CPU, USUAL, config)
    assert found is not None and dict(found.opts.vector)[0] in (2, 4), found
"""


def test_two_processes_write_one_entry(config: Config) -> None:
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", _WRITE, str(config.cache_dir)]
    both = [subprocess.Popen([*command, str(v)], cwd=repository) for v in (2, 4)]
    assert [p.wait(timeout=60) for p in both] == [0, 0]
    found = winners.stored(root(), CPU, USUAL, config)
    assert found is not None and dict(found.opts.vector)[0] in (2, 4)
