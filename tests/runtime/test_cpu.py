"""C text becomes a callable kernel, through the compiler once and the disk cache afterwards."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.kernels import param
from tests.runtime.sources import AXPY_C
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.errors import DeviceError, ToolchainError, UsageError
from uopc.opts import Opts
from uopc.pipeline import compile as compile_bodies
from uopc.render import emulate
from uopc.runtime import cpu
from uopc.runtime.arrays import address
from uopc.runtime.cache import open_cache
from uopc.uop.ops import Ops

FILL = (
    "int fill(void **args) { int *p = args[0]; for (int i = 0; i < 8; i++) p[i] = %d; return 0; }"
)


def _filled(kernel: cpu.Kernel) -> list[int]:
    out = np.zeros(8, np.int32)
    kernel([address(out)])
    return [int(x) for x in out]


def test_the_second_load_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(cache_dir=tmp_path)
    assert _filled(cpu.load(FILL % 3, "fill", config=config)) == [3] * 8

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("ran a process")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert _filled(cpu.load(FILL % 3, "fill", config=config)) == [3] * 8
    with pytest.raises(AssertionError, match="ran a process"):
        cpu.load(FILL % 4, "fill", config=config)


def test_an_evicted_kernel_goes_on_running(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    kernel = cpu.load(FILL % 5, "fill", config=config)
    assert open_cache(config).clear() == 1
    assert _filled(kernel) == [5] * 8
    assert _filled(cpu.load(FILL % 5, "fill", config=config)) == [5] * 8


def test_a_torn_entry_is_compiled_again(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path)
    cpu.load(FILL % 6, "fill", config=config)
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(entry.read_bytes()[:5000])
    assert _filled(cpu.load(FILL % 6, "fill", config=config)) == [6] * 8


def test_without_a_folder_for_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    kernel = cpu.load(FILL % 7, "fill", config=Config(cache_dir=tmp_path / "cache"))
    assert _filled(kernel) == [7] * 8


def test_many_processes_compile_one_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from uopc.config import Config; from uopc.runtime import cpu\n"
        "from uopc.runtime.arrays import address\n"
        "out = np.zeros(8, np.int32)\n"
        "config = Config(cache_dir=Path(sys.argv[1]))\n"
        f"cpu.load({FILL % 8!r}, 'fill', config=config)([address(out)])\n"
        "print(out.sum())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "cold")]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=60) for process in running]
    assert said == [("64\n", "")] * 4
    state = open_cache(Config(cache_dir=tmp_path / "cold")).status()
    assert (state.entries, state.problem) == (1, "")
    assert len(list((tmp_path / "cold").iterdir())) == 1


def test_a_second_process_loads_within_two_milliseconds(tmp_path: Path) -> None:
    """From text to callable, modules imported; the best of five, since the machine is shared."""
    program = (
        "import sys, time; from pathlib import Path\n"
        "from uopc.config import Config; from uopc.runtime import cpu\n"
        "config = Config(cache_dir=Path(sys.argv[1])); start = time.perf_counter()\n"
        f"cpu.load({AXPY_C!r}, 'axpy', config=config)\n"
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    best = min(
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    )
    assert best < 2e-3


def test_what_has_little_to_do_is_compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """By tcc where it is installed, else without optimisation; all else is optimised."""
    installed = {"gcc": sys.executable, "tcc": sys.executable}
    monkeypatch.setattr(shutil, "which", lambda name: installed.get(Path(name).name))
    cpu._find.cache_clear()
    little = (("emulated", cpu.QUICK_WORK), ("emulated", 0))
    more = (("emulated", cpu.QUICK_WORK + 1), ("emulated", None), ("c", 0))

    def optimised(cc: str, kinds: Iterable[tuple[str, int | None]]) -> set[str]:
        found = (cpu._compiler_for("", language, Config(cc=cc), work) for language, work in kinds)
        return {next((f for f in flags if f.startswith("-O")), "tcc") for _, flags in found}

    assert optimised("", little) == {"tcc"} and optimised("", more) == {"-O2", "-O3"}
    assert optimised("gcc", little) == {"-O0"}
    del installed["tcc"]
    assert optimised("", little) == {"-O0"} and optimised("", more) == {"-O2", "-O3"}
    cpu._find.cache_clear()


def test_numbers_stay_as_written(tmp_path: Path) -> None:
    """No contraction into fma, no reassociation, NaN and -0.0 kept, denormals kept."""
    text = (
        "int f(void **args) { float *p = args[0];"
        " p[3] = p[0] * p[1] + p[2]; p[4] = (p[5] + p[6]) - p[5];"
        " p[7] = p[8] * 0.0f; p[9] = p[9] + 0.0f; p[10] = p[10] * 0.5f; return 0; }"
    )
    x = np.float32(1 + 2**-12)
    p = np.array([x, x, -1 - 2**-11, 0, 0, 1, 2**-30, 0, np.inf, -0.0, 1e-40], np.float32)
    cpu.load(text, "f", config=Config(cache_dir=tmp_path))([address(p)])
    assert p[3] == 0  # a fused product would leave 2**-24
    assert p[4] == 0  # (1 + tiny) - 1 in f32
    assert np.isnan(p[7])
    assert p[9] == 0 and not np.signbit(p[9])  # -0.0 + 0.0 is 0.0: the addition stays
    assert p[10] == np.float32(1e-40) * np.float32(0.5) != 0


def test_any_thread_may_call(tmp_path: Path) -> None:
    kernel = cpu.load(FILL % 9, "fill", config=Config(cache_dir=tmp_path))
    got: list[list[int]] = []
    threads = [threading.Thread(target=lambda: got.append(_filled(kernel))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [[9] * 8] * 4


def ways(kernel: cpu.Kernel, addresses: list[int]) -> list[Callable[[], None]]:
    """The ways to call it on these addresses."""
    prepared = kernel.prepared(len(addresses))
    return [partial(kernel, addresses), partial(prepared, addresses), kernel.bound(addresses)]


def test_the_number_of_threads_is_the_configuration_s(tmp_path: Path) -> None:
    text = (
        "int omp_get_num_threads(void);\n"
        "int f(void **args) { int *p = args[0];\n"
        "#pragma omp parallel\n"
        "{ p[0] = omp_get_num_threads(); }\n"
        "return 0; }"
    )
    for threads in (1, 3):
        out = np.zeros(1, np.int32)
        kernel = cpu.load(text, "f", config=Config(cache_dir=tmp_path, threads=threads))
        where = [address(out)]
        for run in ways(kernel, where):
            out[0] = 0
            run()
            assert out[0] == threads


def test_what_is_prepared_gets_the_same_as_a_call(tmp_path: Path) -> None:
    """The addresses, then 0 where an emulated run has its request."""
    text = """int f(void **args) {
      long *out = args[0]; out[0] = (long)args[1]; out[1] = (long)args[2]; return 0; }"""
    kernel = cpu.load(text, "f", config=Config(cache_dir=tmp_path))
    out = np.full(2, 9)
    where = [address(out), 12345]
    for run in ways(kernel, where):
        out[:] = 9
        run()
        assert out.tolist() == [12345, 0]


def test_a_kernel_that_fails_says_so(tmp_path: Path) -> None:
    kernel = cpu.load("int f(void **args) { return 7; }", "f", config=Config(cache_dir=tmp_path))
    for run in ways(kernel, []):
        with pytest.raises(DeviceError, match=r"kernel f returned 7: a kernel returns 0\."):
            run()


def test_what_an_emulated_kernel_returns_is_told(tmp_path: Path) -> None:
    assert set(cpu.FAILURES) == {emulate.DEADLOCK, emulate.NO_MEMORY, emulate.FAULT}
    text = f"int f(void **args) {{ return {emulate.DEADLOCK}; }}"
    with pytest.raises(DeviceError, match="kernel f returned 1: its warps wait for what never"):
        cpu.load(text, "f", config=Config(cache_dir=tmp_path))([])


def test_a_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError) as error:
        cpu.load(AXPY_C, "axpy", config=Config(cache_dir=tmp_path, cc="/no/such/cc"))
    assert str(error.value) == (
        "no C compiler found: UOPC_CC is '/no/such/cc'. "
        "Install gcc or clang, or set UOPC_CC to a compiler's path."
    )
    monkeypatch.setattr("shutil.which", lambda _: None)
    cpu._find.cache_clear()
    with pytest.raises(ToolchainError, match="tried gcc, clang, cc on PATH"):
        cpu.find_compiler(Config())


def test_the_compiler_may_have_a_launcher(tmp_path: Path) -> None:
    compiler = cpu.find_compiler(Config(cc="env gcc"))
    assert compiler.command[1:] == ("gcc",)
    kernel = cpu.load(FILL % 2, "fill", config=Config(cache_dir=tmp_path, cc="env gcc"))
    assert _filled(kernel) == [2] * 8


def test_another_compiler_is_another_key() -> None:
    names = {cpu.find_compiler(Config(cc=cc)).identity for cc in ("gcc", "env gcc", "")}
    assert len(names) == 2  # "" found gcc or its like


def test_text_that_the_compiler_refuses(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as error:
        cpu.load("int f(void **args) { return oops; }", "f", config=Config(cache_dir=tmp_path))
    said = str(error.value)
    assert "refused kernel f (exit 1)" in said and "f.c:1:" in said and "oops" in said
    assert "-ffp-contract=off" in said


def test_text_without_the_function(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the C text defines no function 'g'"):
        cpu.load("int f(void **args) { return 0; }", "g", config=Config(cache_dir=tmp_path))


def test_no_room_to_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(ToolchainError, match=r"could not be compiled: .*Free some space there"):
        cpu.load(FILL % 1, "fill", config=Config(cache_dir=tmp_path))


def test_each_compile_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = Config(cache_dir=tmp_path, debug=1)
    cpu.load(FILL % 10, "fill", config=config)
    assert "uopc: compiled fill with " in capfd.readouterr().err
    cpu.load(FILL % 10, "fill", config=config)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("said", "wrongly"),
    [
        ("cc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 Free Software Foundation", True),
        ("gcc (GCC) 13.2.1 20230801\nCopyright (C) 2023 Free Software Foundation, Inc.", True),
        ("gcc (GCC) 13.3.0\nCopyright (C) 2023 Free Software Foundation, Inc.", False),
        ("gcc-15 (Homebrew GCC 15.1.0) 15.1.0\nCopyright (C) 2025 Free Software Foundation", False),
        ("clang version 12.0.1\nTarget: x86_64-pc-linux-gnu", False),
        ("", False),
    ],
)
def test_which_gcc_loads_wrongly_under_masks(tmp_path: Path, said: str, wrongly: bool) -> None:
    fake = tmp_path / "cc"
    fake.write_text(f"#!/bin/sh\necho '{said}'\n")
    fake.chmod(0o755)
    assert cpu._masks_wrongly((str(fake),)) is wrongly


def test_a_compiler_is_asked_for_its_version_where_loads_have_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(command: tuple[str, ...]) -> bool:
        asked.append(command)
        return True

    monkeypatch.setattr(cpu, "_masks_wrongly", ask)
    config = Config(cache_dir=tmp_path)
    cpu.load(FILL % 11, "fill", config=config)
    assert not asked
    guarded = "int g(void **args) { int *p = args[0]; p[0] = p[1] > 3 ? p[2] : 5; return 0; }"
    for _ in range(2):  # the second one is in the cache
        cpu.load(guarded, "g", config=config)
    assert asked == [cpu.find_compiler(config).command]


@pytest.mark.parametrize("first", [Ops.MAX, Ops.MIN])
def test_extremes_beside_a_sum_of_integers(first: Ops) -> None:
    """gcc 12 takes wrong lanes of several extremes in unsigned memories (note 0004)."""
    x = param(0, 16, dtype=dtypes.i32)
    squares = x * x if first is Ops.MAX else -(x * x)
    bodies = [squares.reduce(first, 1), squares.reduce(Ops.ADD, 1)]
    values = np.arange(16, dtype=np.int32) % 6
    values[3] = 8
    found, total = compile_bodies(bodies, Opts(upcast={0: 2}), "cpu")(values)
    assert abs(int(found)) == 64 and abs(int(total)) == int((values * values).sum())
