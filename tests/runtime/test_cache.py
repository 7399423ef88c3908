"""The disk cache keeps, forgets and survives."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uopc.config import Config
from uopc.runtime import cache
from uopc.runtime.cache import Cache, cache_key, open_cache

KEY = cache_key("so", "text", ("-O3",), "gcc")
MB = 1 << 20


def test_what_was_put_is_found(tmp_path: Path) -> None:
    store = Cache(tmp_path / "new" / "folder", MB)
    assert store.get(KEY) is None
    path = store.put(KEY, b"code", "warning: é")
    entry = store.get(KEY)
    assert entry is not None
    assert (entry.code, entry.log, entry.path) == (b"code", "warning: é", path)
    state = store.status()
    assert (state.entries, state.hits, state.misses, state.problem) == (1, 1, 1, "")
    assert state.size_bytes == path.stat().st_size if path else False
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [KEY]  # no partial file


def test_the_file_begins_with_the_object(tmp_path: Path) -> None:
    path = Cache(tmp_path, MB).put(KEY, b"\x7fELF...", "log")
    assert path is not None and path.read_bytes().startswith(b"\x7fELF...log")


@pytest.mark.parametrize("part", ["kind", "text", "flags", "toolchain"])
def test_everything_is_in_the_key(part: str) -> None:
    given: dict[str, Any] = dict(kind="so", text="text", flags=("-O3",), toolchain="gcc")
    changed = given | {part: ("-O2",) if part == "flags" else given[part] + "x"}
    assert cache_key(**given) == KEY != cache_key(**changed)


def test_parts_of_the_key_do_not_run_together() -> None:
    assert cache_key("so", "a", ("b", "c"), "d") != cache_key("so", "a", ("bc",), "d")


def test_the_key_holds_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uopc.__version__", "another", raising=False)
    assert cache_key("so", "text", ("-O3",), "gcc") != KEY


def _cut(data: bytes) -> bytes:
    return data[:-10]


def _flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def _empty(data: bytes) -> bytes:
    return b""


def _grown(data: bytes) -> bytes:
    return b"x" + data


@pytest.mark.parametrize("damage", [_cut, _flip, _empty, _grown])
def test_a_damaged_file_is_a_miss_and_goes(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store = Cache(tmp_path, MB)
    path = store.put(KEY, b"code" * 100)
    assert path is not None
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(KEY) is None
    assert not path.exists()


def test_a_file_under_another_key_is_a_miss(tmp_path: Path) -> None:
    store = Cache(tmp_path, MB)
    path, other = store.put(KEY, b"code"), cache_key("so", "other", (), "gcc")
    assert path is not None
    path.rename(tmp_path / other)
    assert store.get(other) is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Cache(tmp_path, 10_000)
    keys = [cache_key("so", str(i), (), "gcc") for i in range(12)]
    for age, key in enumerate(keys[:9]):
        path = store.put(key, bytes(900))
        assert path is not None
        os.utime(path, (time.time() - 9000 + age, time.time() - 9000 + age))
    assert store.get(keys[0]) is not None  # used just now: its time is renewed
    for key in keys[9:]:
        store.put(key, bytes(900))
    left = {p.name for p in tmp_path.iterdir()}
    assert {keys[0], *keys[9:]} <= left
    assert not {keys[1], keys[2]} & left
    assert store.status().size_bytes <= 10_000


def test_an_entry_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    assert Cache(tmp_path, 1000).put(KEY, bytes(1000)) is None
    assert not any(tmp_path.iterdir())


def test_abandoned_partial_files_go(tmp_path: Path) -> None:
    old, new = tmp_path / f"{cache._PARTIAL}old", tmp_path / f"{cache._PARTIAL}new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    Cache(tmp_path, MB).put(KEY, b"code")
    assert not old.exists() and new.exists()


def test_clear_leaves_what_is_not_ours(tmp_path: Path) -> None:
    store = Cache(tmp_path, MB)
    store.put(KEY, b"code")
    (tmp_path / "notes.txt").write_text("mine")
    assert store.clear() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    assert store.status().entries == 0


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    store = Cache(tmp_path / "cache", MB)
    assert store.put(KEY, b"code") is None and store.get(KEY) is None
    assert "cannot" in store.status().problem and str(tmp_path / "cache") in store.status().problem
    assert store.clear() == 0


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC])
def test_a_read_only_or_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = Cache(tmp_path, MB)
    store.put(KEY, b"code")
    other = cache_key("so", "other", (), "gcc")

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", refuse)
    assert store.put(other, b"code") is None
    assert os.strerror(code) in store.status().problem
    assert store.get(KEY) is not None  # what is there is still read
    assert [p.name for p in tmp_path.iterdir()] == [KEY]  # nothing half written stays


def test_nothing_is_kept_at_zero_megabytes(tmp_path: Path) -> None:
    store = open_cache(Config(cache_dir=tmp_path, cache_mb=0))
    assert store.put(KEY, b"code") is None and store.get(KEY) is None
    assert "UOPC_CACHE_MB=0" in store.status().problem


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: Path("~/.cache/uopc"))
    cache._open.cache_clear()
    store = open_cache(Config())
    cache._open.cache_clear()
    assert store.put(KEY, b"code") is None and store.get(KEY) is None
    assert store.status().problem == "there is no home folder; set UOPC_CACHE_DIR"


def test_status_and_clear_of_a_configuration(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, cache_mb=1)
    open_cache(config).put(KEY, b"code")
    assert cache.status(config).entries == 1
    assert cache.clear(config) == 1 and cache.status(config).entries == 0
