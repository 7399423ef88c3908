"""No harmful mutant of synchronisation is missed in any order, and no original is reported."""

from __future__ import annotations

import pytest

from tests.mutation.study import Subject, study, study_by_hooks
from tests.mutation.subjects import subjects

SUBJECTS = subjects()
#: mutants that change nothing: kernel -> how many, and why
REDUNDANT = {
    "bulk_tile_0": 1,  # one warp: its block barrier and __syncwarp are the same
    "bulk_tile_32": 1,
    "bulk_tile_64": 1,
    "bulk_tile_128": 1,
    "sum folded by the last block": 2,  # one thread stores the part, and draws the ticket after it
    "columns folded by the last block": 1,  # those that store are of one warp
    "specialised_product": 2,  # the empty barriers of stages that are filled once
}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.word)
def test_every_harmful_mutant_is_flagged_in_every_order(subject: Subject) -> None:
    row = study_by_hooks(subject)
    assert row.clean, "the original has a report, or other bits in another order"
    assert row.missed() == []
    assert row.unsteady() == []
    assert len(row.redundant()) == REDUNDANT.get(subject.name, 0), row.redundant()


@pytest.mark.parametrize("name", ["warp_transpose", "smem_product", "copy_ring_2"])
def test_access_mutants_are_caught_by_the_checker_or_by_their_values(name: str) -> None:
    row = study(next(s for s in SUBJECTS if s.name == name))
    assert {f.kind for f in row.findings} >= {"delete", "index"}
    assert not [f for f in row.missed() if f.kind in ("delete", "weaken")]
    assert row.unsteady() == []


def test_the_study_is_not_vacuous() -> None:
    row = study_by_hooks(next(s for s in SUBJECTS if s.name == "mbarrier_handover"))
    assert sum(f.harmful for f in row.findings) >= 10
