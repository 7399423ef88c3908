"""One line per compile on standard error, where UOPC_DEBUG asks for it."""

from __future__ import annotations

import sys

from uopc.config import Config


def report(config: Config, what: str, time_s: float) -> None:
    """Say what was done and how long it took, under UOPC_DEBUG >= 1."""
    if config.debug >= 1:
        print(f"uopc: {what} in {time_s * 1e3:.1f} ms", file=sys.stderr)
