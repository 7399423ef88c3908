"""The only reader of the environment.

`Config.from_env()` is called once, by `uopc.config.current()`; everything else receives values.
Nothing here changes generated code: whatever does is in Opts or Target.  `searched` says only whose
Opts are taken, those of the automatic choice or what a search found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from uopc.errors import UsageError

#: name -> (default, meaning): the one table of variables, printed by `uopc doctor` and the book.
VARIABLES: dict[str, tuple[str, str]] = {
    "UOPC_CHECK": ("0", "1 checks every emulated kernel: races, stray accesses and the like"),
    "UOPC_CHECK_SPEC": ("0", "1 checks the stage spec before and after every pass"),
    "UOPC_DEBUG": ("0", "1 reports each compile"),
    "UOPC_CACHE_DIR": ("", "folder of compiled kernels; empty: the user's cache folder"),
    "UOPC_CACHE_MB": ("512", "size bound of that folder in MiB; 0 keeps nothing on disk"),
    "UOPC_CC": ("", "the C compiler; empty: the first of gcc, clang, cc on PATH"),
    "UOPC_DEVICE": (
        "",
        "default device: cuda, emulated or cpu; empty: cuda if usable, else emulated",
    ),
    "UOPC_NVTX": ("0", "1 names launches, schedules and compiles for Nsight (package nvtx)"),
    "UOPC_SEARCHED": ("1", "0 chooses as if nothing had been searched for (`uopc.search`)"),
    "UOPC_SYNC": ("0", "1 waits for every launch, so that a failure names its kernel"),
    "UOPC_THREADS": ("0", "threads of native CPU kernels; 0: one per available core"),
}


@dataclass(frozen=True)
class Config:
    """What the environment says.  Sizes in MiB where named so."""

    check: bool = False
    check_spec: bool = False
    debug: int = 0
    cache_dir: Path | None = None
    cache_mb: int = 512
    cc: str = ""
    device: str = ""
    nvtx: bool = False
    searched: bool = True
    sync: bool = False
    threads: int = 0

    @classmethod
    def from_env(cls) -> Config:
        """Read every UOPC_* variable once."""

        def get(name: str) -> str:
            return os.environ.get(name, VARIABLES[name][0])

        def number(name: str) -> int:
            text = get(name)
            try:
                return int(text or 0)
            except ValueError:
                raise UsageError(f"{name} must be a whole number, got {text!r}") from None

        folder = get("UOPC_CACHE_DIR")
        return cls(
            check=number("UOPC_CHECK") != 0,
            check_spec=number("UOPC_CHECK_SPEC") != 0,
            debug=number("UOPC_DEBUG"),
            cache_dir=Path(folder) if folder else None,
            cache_mb=number("UOPC_CACHE_MB"),
            cc=get("UOPC_CC"),
            device=get("UOPC_DEVICE"),
            nvtx=number("UOPC_NVTX") != 0,
            searched=number("UOPC_SEARCHED") != 0,
            sync=number("UOPC_SYNC") != 0,
            threads=number("UOPC_THREADS"),
        )


@lru_cache(maxsize=1)
def current() -> Config:
    """The process's configuration, read on first use (`current.cache_clear()` reads it again)."""
    return Config.from_env()
