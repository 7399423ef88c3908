"""What searches found: for a kernel, a target and a toolchain, the Opts that ran fastest here.

One small JSON each, in a folder beside the compiled objects (`runtime/cache.py`), which it is
written like: by one rename, with a digest, so that a torn file is none.  Another kernel, shape,
dtype, part or compiler is another entry.  Kernels are compiled with what is found here unless
UOPC_SEARCHED=0; given the same folder, choices are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uopc.config import Config, current
from uopc.errors import UopcError
from uopc.kernel import Numerics
from uopc.opts import Opts
from uopc.runtime import cpu, nvrtc
from uopc.runtime.cache import Cache, cache_key, open_cache
from uopc.target import Target
from uopc.uop.node import UOp
from uopc.uop.text import show

FOLDER = "searched"
_KIND = "opts"
#: some ten thousand winners; those that were not asked for longest go first
_LIMIT_BYTES = 8 << 20


@dataclass(frozen=True)
class Winner:
    """The fastest Opts of a kernel, the seconds that it took, and those of the automatic choice."""

    opts: Opts
    time_s: float
    automatic_s: float


def stored(
    root: UOp, on: Target, numerics: Numerics, config: Config | None = None
) -> Winner | None:
    """The winner for a kernel in stage INDEXED; None where there is none that can be read."""
    folder = _folder(config)
    if not folder.folder or not folder.folder.is_dir():  # nobody has searched: no text is made
        return None
    key = _key(root, on, numerics, config)
    entry = folder.get(key) if key else None
    return None if entry is None else _read(entry.code)


def keep(
    root: UOp, on: Target, numerics: Numerics, winner: Winner, config: Config | None = None
) -> Path | None:
    """Store a winner in the place of any other; its file, or None where nothing can be kept."""
    key = _key(root, on, numerics, config)
    if key is None:
        return None
    data = {
        "opts": winner.opts.to_json(),
        "time_s": winner.time_s,
        "automatic_s": winner.automatic_s,
        "target": str(on),
    }
    return _folder(config).put(key, json.dumps(data).encode())


def forget(root: UOp, on: Target, numerics: Numerics, config: Config | None = None) -> None:
    """Let the automatic choice be used for a kernel."""
    key, folder = _key(root, on, numerics, config), _folder(config).folder
    if key is not None and folder is not None:
        try:
            (folder / key).unlink(missing_ok=True)
        except OSError:  # it cannot be written to: then `keep` has not either
            return


def _folder(config: Config | None) -> Cache:
    """Where they are: nowhere, where nothing is cached."""
    cache = open_cache(config)
    if not cache.usable or cache.folder is None:
        return Cache(None, 0)
    return Cache(cache.folder / FOLDER, min(cache.limit_bytes, _LIMIT_BYTES))


def _key(root: UOp, on: Target, numerics: Numerics, config: Config | None) -> str | None:
    """The file's name; None where there is no compiler that times would be of."""
    config = config or current()
    try:
        toolchain = nvrtc.nvrtc_identity() if on.is_gpu else cpu.find_compiler(config).identity
    except UopcError:
        return None
    about = (str(on), str(on.sms), str(numerics), "" if on.is_gpu else str(config.threads))
    return cache_key(_KIND, show(root), about, toolchain)


def _read(code: bytes) -> Winner | None:
    """What an entry says; None where another version of uopc wrote it."""
    try:
        data: dict[str, Any] = json.loads(code)
        times = float(data["time_s"]), float(data["automatic_s"])
        return Winner(Opts.from_json(data["opts"]), *times)
    except (ValueError, KeyError, TypeError, UopcError):
        return None
