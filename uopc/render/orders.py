"""In which order an emulated kernel does what may be done in any order: names and their numbers."""

from __future__ import annotations

import re

from uopc.errors import UsageError


def order_number(order: str) -> tuple[int, int]:
    """(kind, seed) of an order of warps.  Raises UsageError for no order."""
    return _numbered(order, "order", ("forward", "backward"), "shuffled")


def engine_number(engine: str) -> tuple[int, int]:
    """(kind, seed) of an order of asynchronous work.  Raises UsageError for no such order."""
    return _numbered(engine, "engine", ("early", "late"), "random")


def _numbered(given: str, what: str, plain: tuple[str, str], seeded: str) -> tuple[int, int]:
    if given in plain:
        return plain.index(given), 0
    found = re.fullmatch(rf"{seeded}\((\d{{1,9}})\)", given)
    if found is None:
        raise UsageError(
            f"{what} is {given!r}; it is {plain[0]!r}, {plain[1]!r} or '{seeded}(seed)', "
            "the seed a whole number of up to 9 digits"
        )
    return len(plain), int(found[1])


__all__ = ["engine_number", "order_number"]
