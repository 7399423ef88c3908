"""Choices by timing: `uopc.search`.

Reading order: candidates.py (what is tried), tries.py (how one is built and timed), apart.py (the
processes where that is done), rounds.py.  Winners are stored by `runtime/winners.py`.
"""

from uopc.searching.rounds import Found as Found
from uopc.searching.rounds import search as search

__all__ = ["Found", "search"]
