"""ptxas's log is read right, one entry at a time."""

from __future__ import annotations

from uopc.runtime.ptxas import parse_log, with_source_lines

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'first' for 'sm_75'
ptxas info    : Function properties for first
ptxas         .     1200 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for helper
ptxas         .     40 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 62 registers, used 1 barriers, 1240 bytes cumulative stack size, \
4000 bytes smem, 364 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 68.913 ms
ptxas info    : Compiling entry function 'second' for 'sm_75'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compile time = 3.223 ms
"""


def test_each_entry_has_its_own_numbers() -> None:
    first, second = parse_log(LOG, "first"), parse_log(LOG, "second")
    assert first is not None and second is not None
    assert (first.registers, first.shared_bytes, first.constant_bytes) == (62, 4000, 372)
    assert (first.stack_bytes, first.spill_store_bytes, first.spill_load_bytes) == (1240, 12, 16)
    assert first.spills and first.log == LOG
    assert (second.registers, second.shared_bytes, second.stack_bytes) == (10, 0, 0)
    assert not second.spills


def test_remarks() -> None:
    used = parse_log(LOG, "second")
    assert used is not None and len(used.remarks) == 1
    assert "(C7510) Potential Performance Loss" in used.remarks[0]
    assert str(used).startswith("10 registers, 0 bytes shared, ptxas info")


def test_no_such_entry() -> None:
    assert parse_log(LOG, "third") is None
    assert parse_log(LOG, "fir") is None
    assert parse_log("", "first") is None


def test_words() -> None:
    used = parse_log(LOG.replace("(C7510)", ""), "first")
    assert str(used) == "62 registers, 4000 bytes shared, 1240 bytes stack, spills 12 + 16 bytes"


def test_source_lines_around_an_error() -> None:
    text = "\n".join(f"line {i}" for i in range(1, 21))
    shown = with_source_lines("k.cu(10): error: what", text).splitlines()
    assert shown[0] == "k.cu(10): error: what"
    assert [s.split("|")[0].split()[-1] for s in shown[1:]] == ["8", "9", "10", "11", "12"]
    assert shown[3] == ">   10 | line 10"
    assert with_source_lines("k.cu(1): warning: what", text) == "k.cu(1): warning: what"
