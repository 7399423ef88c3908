"""Mutants of every kernel that synchronises, and what the checked emulator says of them.

    python scratch/mutants.py [NAME ...]     kernels whose name contains one of these; none: all

Each barrier, wait, fence, commit and arrival is deleted or weakened in turn, each index shifted or
stretched, each gate dropped.  A mutant is harmful if plain runs of it show other bits or hang.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.mutation.study import Finding, Row, study
from tests.mutation.subjects import subjects

SYNCHRONISATION = ("delete", "weaken")


def named(number: int) -> Row:
    return study(subjects()[number])


def counts(findings: list[Finding]) -> str:
    """mutants, harmful, flagged."""
    harmful = sum(f.harmful for f in findings)
    return f"{len(findings):>8}{harmful:>8}{sum(f.flagged for f in findings):>8}"


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [
        n for n, s in enumerate(subjects()) if not wanted or any(word in s.name for word in wanted)
    ]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(named, chosen))
    print(f"{'':28}{'synchronisation':>24}{'accesses':>24}")
    three = f"{'mutants':>8}{'harmful':>8}{'flagged':>8}"
    print(f"{'kernel':28}{three}{three}")
    both: list[list[Finding]] = [[], []]
    for row in rows:
        parts = [
            [f for f in row.findings if (f.kind in SYNCHRONISATION) is first]
            for first in (True, False)
        ]
        for all_of_them, part in zip(both, parts, strict=True):
            all_of_them += part
        print(f"{row.kernel:28}" + "".join(map(counts, parts)))
    print(f"{'all':28}" + "".join(map(counts, both)))
    print(f"originals with a report, in any order: {sum(not r.clean for r in rows)}")
    harmful = [f for r in rows for f in r.missed() if f.kind in SYNCHRONISATION]
    print(f"harmful synchronisation mutants not flagged in every order: {len(harmful)}")
    by_bits = [f for r in rows for f in r.findings if f.harmful and f.kind not in SYNCHRONISATION]
    caught = sum(f.flagged for f in by_bits)
    print(f"harmful access mutants: {caught} flagged, {len(by_bits) - caught} wrong values only")
    kinds = Counter(f.kinds[0].name for r in rows for f in r.findings if f.kinds[0] is not None)
    print("first faults:", ", ".join(f"{k} {n}" for k, n in sorted(kinds.items())))
    for title, of in (
        ("missed", Row.missed),
        ("flagged in some orders only", Row.unsteady),
        ("redundant: neither flagged nor harmful", Row.redundant),
        ("flagged, no harm seen", Row.unharmed),
    ):
        lines = [
            f"  {r.kernel}: {f.mutant} at {f.place}"
            + (f" ({f.kinds[0].name})" if f.kinds[0] is not None else "")
            for r in rows
            for f in of(r)
            if f.kind in SYNCHRONISATION
        ]
        print(f"{title}: {len(lines)}")
        print("\n".join(lines)) if lines else None


if __name__ == "__main__":
    main()
