"""What ptxas says about a kernel: registers, memory, spills and remarks, read from its log."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")
_REMARK = re.compile(r"\(C75\d\d\)")


@dataclass(frozen=True)
class Resources:
    """What one kernel uses: registers per thread, bytes of static shared memory per block, bytes of
    stack and spills per thread, bytes of constant memory (parameters included).

    remarks: ptxas's C75xx lines, which name a lost optimisation (a serialised wgmma, an ignored
    setmaxnreg).  log: the whole text.  Spills and stack include functions that were not inlined.
    """

    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    constant_bytes: int = 0
    remarks: tuple[str, ...] = ()
    log: str = ""

    @property
    def spills(self) -> bool:
        """Whether registers went to memory."""
        return self.spill_store_bytes + self.spill_load_bytes > 0

    def __str__(self) -> str:
        parts = [f"{self.registers} registers", f"{self.shared_bytes} bytes shared"]
        if self.stack_bytes:
            parts.append(f"{self.stack_bytes} bytes stack")
        if self.spills:
            parts.append(f"spills {self.spill_store_bytes} + {self.spill_load_bytes} bytes")
        return ", ".join((*parts, *self.remarks))


def parse_log(log: str, name: str) -> Resources | None:
    """The resources of the entry function `name`, or None where the log has no such entry.

    Each entry has a section from its "Compiling entry function" line to the next one.
    """
    section: list[str] | None = None
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            if section is not None:
                break
            section = [] if entry[1] == name else None
        if section is not None:
            section.append(line)
    text = "\n".join(section or ())
    used = _USED.search(text)
    if used is None:
        return None
    frames = [tuple(map(int, frame)) for frame in _FRAME.findall(text)]
    deepest = max((f[0] for f in frames), default=0)
    stack = _STACK.search(used[2])
    return Resources(
        registers=int(used[1]),
        shared_bytes=sum(map(int, _SHARED.findall(used[2]))),
        stack_bytes=max(deepest, int(stack[1]) if stack else 0),
        spill_store_bytes=sum(f[1] for f in frames),
        spill_load_bytes=sum(f[2] for f in frames),
        constant_bytes=sum(map(int, _CONSTANT.findall(used[2]))),
        remarks=tuple(line.strip() for line in log.splitlines() if _REMARK.search(line)),
        log=log,
    )


def with_source_lines(log: str, text: str, around: int = 2) -> str:
    """The log, and under it the numbered lines of `text` around each line that an error names."""
    lines = text.splitlines()
    numbers = [int(n) for n in re.findall(r"\((\d+)\): (?:catastrophic )?error", log)]
    shown = {k for n in numbers for k in range(n - around, n + around + 1) if 0 < k <= len(lines)}
    wrong = set(numbers)
    listing = [f"{'>' if k in wrong else ' '}{k:5d} | {lines[k - 1]}" for k in sorted(shown)]
    return "\n".join([log.strip(), *listing])
