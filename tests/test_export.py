"""`uopc export`: what the folder holds, what the built program asks of a driver, and what it finds.

The driver is `fake_libcuda.c`, made of host memory, which writes down what it is asked: no GPU is
needed.  The tests at the end launch on one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.commands import own_cache
from tests.kernels import param, product, softmax
from uopc.cli import main
from uopc.compiled import Kernel, Step
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import TargetError, ToolchainError, UsageError
from uopc.examples import EXAMPLES
from uopc.export import command, numbers
from uopc.export.described import describe
from uopc.export.exactness import bits_are_known
from uopc.export.folder import MANIFEST, write_folder
from uopc.kernel import Source
from uopc.layouts import tma_encoding
from uopc.pipeline import compile
from uopc.runtime.arrays import HostArray
from uopc.runtime.cuda import device_target
from uopc.show import steps_of
from uopc.target import target as named_target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.userfile import load

MODEL = """\
import numpy as np
from uopc.dtype import DATA, dtypes
from uopc.examples import EXAMPLES, smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop import Ops, buffer

def rows(n, size):
    x = buffer(0, dtypes.f32, (n, size))
    wide = lambda v: v.reshape((n, 1)).expand((n, size))
    e = (x - wide(x.reduce(Ops.MAX, 1))).exp()
    return e / wide(e.reduce(Ops.ADD, 1))

def of(m, n, k, dtype):
    a = buffer(0, dtype, (m, k)).reshape((m, 1, k)).expand((m, n, k)).cast(dtypes.f32)
    b = buffer(1, dtype, (n, k)).reshape((1, n, k)).expand((m, n, k)).cast(dtypes.f32)
    return (a * b).reduce(Ops.ADD, 1).cast(dtype)

factor = buffer(1, dtypes.f32, ()).expand((50, 400))
scaled = buffer(0, dtypes.f32, (50, 400)) * factor + 1.0
total = buffer(0, dtypes.f32, (1 << 20,)).reduce(Ops.ADD)
pieces = buffer(0, dtypes.f32, (600, 5)).reduce(Ops.MAX).reduce(Ops.ADD)
halves = compile(pieces, Opts(gpu=True, blocks={1: 3}, local={1: 32}), "sm_90a", "halves")
soft = rows(20, 300)
wide = rows(8, 131072)
sixteen = compile(
    rows(2, 8192), Opts(gpu=True, cluster={1: 16}, local={1: 128}, vector={1: 4}), "sm_90a", "many"
)
eight = of(256, 128, 512, dtypes.f8e4m3)
large = of(512, 512, 512, dtypes.f32)
matrix = of(256, 128, 256, dtypes.bf16)
hand = smem_gemm_ir(64, 16)
asserted = EXAMPLES["checked_square"].build()
types = [buffer(n, d, (700,)).flip((0,)) for n, d in enumerate(DATA)]
empty = buffer(0, dtypes.f32, (0, 4)) + 1.0
picked = buffer(0, dtypes.f32, (40,)).log()
picked_arrays = [np.linspace(1, 4, 40, dtype=np.float32)]
for_cpu = compile(picked, target="cpu")
for name, example in EXAMPLES.items():
    vars()[name] = example.build
    vars()[f"{name}_arrays"] = example.arrays
"""
TARGET = "sm_90a"


# ---- building and running
@cache
def why_no_build() -> str:
    """Exactly what is missing to build an exported kernel; "" where nothing is."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            return f"no exported kernel can be built: {tool} is not installed"
    if not cuda_home():
        return "no exported kernel can be built: there is no cuda.h in /usr/local/cuda or by nvcc"
    return ""


def cuda_home() -> str:
    nvcc = shutil.which("nvcc")
    beside = [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *beside, "/usr"]
    return next((h for h in homes if h and Path(h, "include", "cuda.h").exists()), "")


@cache
def why_no_nvcc() -> str:
    if why_no_build():
        return why_no_build()
    if Path(cuda_home(), "bin", "nvcc").exists() or shutil.which("nvcc"):
        return ""
    return "the exported CUDA text is not compiled: nvcc is not installed"


builds = pytest.mark.skipif(bool(why_no_build()), reason=why_no_build())
compiles = pytest.mark.skipif(bool(why_no_nvcc()), reason=why_no_nvcc())


@dataclass
class Folder:
    """An exported kernel; the driver's log of its last run, and where that driver keeps things."""

    path: Path
    name: str
    driver: Path
    said: str = ""
    log: list[dict[str, str]] = field(default_factory=list)

    def make(self, *targets: str) -> str:
        done = subprocess.run(
            ["make", *targets, f"CUDA_HOME={cuda_home()}", "CFLAGS=-O1 -Wpedantic -Werror"],
            cwd=self.path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, program: str = "", **settings: str) -> int:
        """Its exit code on the fake driver; what it said and what the driver was asked are kept."""
        self.driver.mkdir(exist_ok=True)
        (self.driver / "log").unlink(missing_ok=True)
        (self.driver / "log").touch()
        variables = dict(FAKE_CUDA=str(self.driver), LD_LIBRARY_PATH=str(fake_driver())) | settings
        built = f"build/{program or self.name}"
        done = subprocess.run(
            [built, "3", *self.check_file],
            cwd=self.path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        self.said = done.stdout + done.stderr
        self.log = [parsed(line) for line in (self.driver / "log").read_text().splitlines()]
        return done.returncode

    @property
    def check_file(self) -> list[str]:
        name = f"{self.name}_check.bin"
        return [name] if (self.path / name).exists() else []

    def calls(self, name: str) -> list[dict[str, str]]:
        return [line for line in self.log if line["call"] == name]

    def has_parameters_of(self, sources: list[Source]) -> None:
        """Tell the driver how many bytes each parameter has."""
        self.driver.mkdir(exist_ok=True)
        lines = [f"{s.name} {' '.join(str(n) for n in parameter_sizes(s))}\n" for s in sources]
        (self.driver / "parameters").write_text("".join(lines))

    def before(self, memory: int, dtype: DType) -> HostArray:
        """What was in an allocation before the last launch."""
        return np.frombuffer((self.driver / f"before_{memory}").read_bytes(), dtype.numpy)

    def after(self, memory: int, array: HostArray) -> None:
        """What a launch is to leave in an allocation."""
        (self.driver / f"after_{memory}").write_bytes(np.ascontiguousarray(array).tobytes())


def parsed(line: str) -> dict[str, str]:
    call, *words = line.split(" ")
    return {"call": call} | dict(w.split("=", 1) for w in words)


def parameter_sizes(source: Source) -> list[int]:
    return [
        *(p.dtype.itemsize if p.scalar else 8 for p in source.params),
        *(128 for _ in source.tensor_maps),
    ]


@cache
def fake_driver() -> Path:
    """A folder with a libcuda.so.1."""
    folder = Path(tempfile.mkdtemp(prefix="fake-driver-"))
    source = Path(__file__).with_name("fake_libcuda.c")
    flags = ["-std=c11", "-O1", "-fPIC", "-shared", f"-I{cuda_home()}/include"]
    subprocess.run(["cc", *flags, "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with a model."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL)
    with own_cache(folder / "cache"):
        yield folder


@pytest.fixture(scope="module")
def exported(home: Path) -> Callable[[str], Folder]:
    """exported(name): the folder of a kernel of the model, exported and built once."""
    made: dict[str, Path] = {}

    def export(name: str) -> Folder:
        if name not in made:
            target = [] if name in ("halves", "sixteen") else ["--target", TARGET]
            to = home / "out" / name
            assert main(["export", f"{home}/model.py:{name}", "-o", str(to), *target]) == 0
            Folder(to, name, home).make()
            made[name] = to
        return Folder(made[name], name, Path(tempfile.mkdtemp(dir=home)))

    return export


def kernel_of(home: Path, name: str) -> tuple[Kernel | UOp, tuple[Step, ...]]:
    """The same kernel, compiled here."""
    _, subject = load(f"{home}/model.py:{name}")
    if isinstance(subject, tuple):
        subject = compile(subject, None, TARGET, name)
    if isinstance(subject, Kernel):
        return subject, subject.steps
    assert isinstance(subject, UOp)
    return subject, steps_of(name, subject, TARGET)


def sources_of(home: Path, name: str) -> list[Source]:
    return [step.cuda_source for step in kernel_of(home, name)[1]]


def comma(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


# ---- what the driver is asked
@builds
@pytest.mark.parametrize(
    ("name", "steps", "has"),
    [
        ("scaled", 1, ""),
        ("total", 1, "counters"),
        ("halves", 2, "partials"),
        ("large", 1, "shared"),
        ("wide", 1, "cluster"),
        ("sixteen", 1, "cluster"),
        ("matrix", 1, "maps"),
        ("hand", 1, ""),
    ],
)
def test_a_launch_is_what_the_source_says(
    exported: Callable[[str], Folder], home: Path, name: str, steps: int, has: str
) -> None:
    folder, sources = exported(name), sources_of(home, name)
    assert len(sources) == steps
    assert has != "shared" or sources[0].dynamic_shared_bytes > 48 << 10
    assert has != "cluster" or sources[0].launch.cluster > 1
    assert has != "maps" or len(sources[0].tensor_maps) >= 2
    folder.has_parameters_of(sources)
    assert folder.run() == 1, folder.said  # nothing was computed
    launches = folder.calls("launch")
    assert len(launches) == steps * (1 + 3 + 1)
    for launch, source in zip(launches, sources * 5, strict=True):
        assert launch["function"] == source.name
        assert launch["grid"] == comma(source.launch.grid)
        assert launch["block"] == comma(source.launch.block)
        assert launch["shared"] == str(source.dynamic_shared_bytes)
        assert launch["stream"] == "1" and launch["extra"] == "0"
        assert launch["contexts"] == "2"  # main's, and the one that a launch pushes
    assert [f["name"] for f in folder.calls("function")] == [s.name for s in sources]


@builds
@pytest.mark.parametrize("name", ["scaled", "total", "halves", "matrix", "hand"])
def test_each_parameter_is_an_array_of_its_size(
    exported: Callable[[str], Folder], home: Path, name: str
) -> None:
    folder, sources = exported(name), sources_of(home, name)
    folder.has_parameters_of(sources)
    folder.run()
    sizes = {a["memory"]: int(a["bytes"]) for a in folder.calls("alloc")}
    where: dict[int, str] = {}  # slot -> its place, the same in every launch
    for launch, source in zip(folder.calls("launch"), sources * 5, strict=True):
        arguments = launch["arguments"].split(",")
        assert len(arguments) == len(source.params) + len(source.tensor_maps)
        for p, place in zip(source.params, arguments, strict=False):
            if p.scalar:
                continue
            assert where.setdefault(p.slot, place) == place
            memory, offset = place.split("+")
            assert int(offset) + p.size * p.dtype.itemsize <= sizes[memory]
            assert int(offset) % max(p.align, 1) == 0
    assert len(set(where.values())) == len(where)


@builds
def test_a_scalar_is_passed_by_value(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("scaled")
    folder.has_parameters_of(sources_of(home, "scaled"))
    folder.run()
    wanted = numbers.generated(1, dtypes.f32, 1, None)
    assert -1 <= wanted[0] < 1 and wanted[0] != 0
    for launch in folder.calls("launch"):
        assert launch["arguments"].split(",")[1] == wanted.tobytes().hex()
    header = (folder.path / "scaled.h").read_text()
    assert "CUstream stream, CUdeviceptr p0, float p1, CUdeviceptr p2);" in header
    assert "SCALED_P0_BYTES ((size_t)80000)" in header and "SCALED_P1" not in header


@builds
def test_counters_are_zeros_before_the_first_launch(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder, (kernel, _) = exported("total"), kernel_of(home, "total")
    assert isinstance(kernel, Kernel) and len(kernel.counters) == 1
    folder.has_parameters_of(sources := sources_of(home, "total"))
    folder.run()
    (cleared,) = folder.calls("memset")
    slots = [p.slot for p in sources[0].params]
    counter = slots.index(*kernel.counters)
    assert folder.calls("launch")[0]["arguments"].split(",")[counter] == cleared["memory"]
    assert (cleared["value"], cleared["bytes"]) == ("0", "4")
    order = [line["call"] for line in folder.log]
    assert order.index("memset") < order.index("synchronize") < order.index("launch")


@builds
@pytest.mark.parametrize(("name", "more"), [("large", ""), ("wide", ""), ("sixteen", "14=1")])
def test_what_a_kernel_must_ask_for(
    exported: Callable[[str], Folder], home: Path, name: str, more: str
) -> None:
    folder, (source,) = exported(name), sources_of(home, name)
    folder.has_parameters_of([source])
    folder.run()
    asked = [f"{a['id']}={a['value']}" for a in folder.calls("attribute")]
    shared = source.dynamic_shared_bytes  # CUfunction_attribute of cuda.h: 8 and 14
    assert asked == [f"8={shared}"] * (shared > 48 << 10) + [more] * bool(more)
    clusters = folder.calls("clusters")
    assert len(clusters) == (source.launch.cluster > 1)
    for c in clusters:  # CUlaunchAttributeID of cuda.h: 4
        assert (c["attributes"], c["id"]) == ("1", "4")
        assert c["size"] == f"{source.launch.cluster},1,1"
        assert (c["grid"], c["block"]) == (comma(source.launch.grid), comma(source.launch.block))
        assert c["shared"] == str(shared)


@builds
def test_tensor_maps_are_encoded_and_passed_after_the_parameters(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder, (source,) = exported("matrix"), sources_of(home, "matrix")
    folder.has_parameters_of([source])
    folder.run()
    count, slots = len(source.tensor_maps), [p.slot for p in source.params]
    encoded = folder.calls("encode")
    for n, launch in enumerate(folder.calls("launch")):
        arguments = launch["arguments"].split(",")
        for m, use in enumerate(source.tensor_maps):
            e, a = encoded[n * count + m], use.arg
            form = tma_encoding(use.dtype.name, a.shape, a.strides, a.box, a.swizzle)
            assert e["start"] == arguments[slots.index(use.slot)]
            assert (e["type"], e["rank"]) == (str(form.data_type), str(form.rank))
            assert (e["sizes"], e["box"]) == (comma(form.sizes), comma(form.box))
            assert (e["strides"], e["steps"]) == (
                comma(form.strides_bytes),
                comma(form.element_strides),
            )
            assert (e["interleave"], e["swizzle"]) == (str(form.interleave), str(form.swizzle))
            assert (e["promotion"], e["fill"]) == (str(form.l2_promotion), str(form.oob_fill))
            words = 0xFA4E << 48 | int(e["map"]) * 16
            content = np.arange(words, words + 16, dtype=np.uint64).tobytes().hex()
            assert arguments[len(slots) + m] == f"aligned:{content}" and e["aligned"] == "1"


@builds
@pytest.mark.parametrize("name", ["scaled", "halves"])
def test_the_machine_code_is_the_cubin_beside_it(
    exported: Callable[[str], Folder], home: Path, name: str
) -> None:
    folder = exported(name)
    folder.has_parameters_of(sources_of(home, name))
    folder.run()
    for n, step in enumerate(kernel_of(home, name)[1]):
        loaded = (folder.driver / f"module_{n}").read_bytes()
        assert loaded == step.cubin.code[: len(loaded)] and len(loaded) > 1000
    cubins = sorted(folder.path.glob("*.cubin"))
    assert [c.read_bytes() for c in cubins] == [s.cubin.code for s in kernel_of(home, name)[1]]
    assert len(folder.calls("unload")) == len(cubins)
    freed = [line["memory"] for line in folder.calls("free")]
    assert len(freed) == len(folder.calls("alloc")) and all(f.endswith("+0") for f in freed)


# ---- inputs and results
def outputs(folder: Folder, home: Path, results: dict[int, HostArray]) -> dict[int, int]:
    """Leave these results, by slot, at the next run; the allocation of each."""
    sources = sources_of(home, folder.name)
    folder.has_parameters_of(sources)
    folder.run()
    memories = {}
    for launch, source in zip(folder.calls("launch"), sources, strict=False):
        for p, place in zip(source.params, launch["arguments"].split(","), strict=False):
            if not p.scalar:
                memories[p.slot] = int(place.split("+")[0])
    for slot, result in results.items():
        folder.after(memories[slot], result)
    return memories


def inputs_of(folder: Folder, home: Path) -> dict[int, HostArray]:
    """What the C program made, by slot."""
    params = {p.slot: p for s in sources_of(home, folder.name) for p in s.params}
    memories = outputs(folder, home, {})
    return {
        slot: folder.before(m, params[slot].dtype)
        for slot, m in memories.items()
        if not params[slot].written
    }


@builds
def test_right_results_are_right_and_wrong_ones_wrong(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder = exported("scaled")
    x = inputs_of(folder, home)[0]
    assert x.size == 20000 and len(np.unique(x)) > 19000
    right = x * numbers.generated(1, dtypes.f32, 1, None) + np.float32(1)
    outputs(folder, home, {2: right})
    assert folder.run() == 0, folder.said
    assert folder.said.count("p2: right: all 20000 elements, bit for bit") == 2
    assert "time: median 125.00 us, 125.00 to 125.00, of 3 launches" in folder.said
    wrong = right.copy()
    wrong[19999] = np.nextafter(wrong[19999], np.float32(9))
    outputs(folder, home, {2: wrong})
    assert folder.run() == 1
    assert f"p2[19999] is {float(wrong[19999]):.17g}, not {float(right[19999]):.17g}" in folder.said
    between = right.copy()
    kept = set(numbers.positions(2, 20000).tolist())
    between[next(n for n in range(5000, 15000) if n not in kept)] += 1
    outputs(folder, home, {2: between})
    assert folder.run() == 1 and "elements between those that are kept differ" in folder.said


@builds
def test_a_tolerance_where_the_bits_are_not_known(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder = exported("soft")
    x = inputs_of(folder, home)[0].reshape(20, 300).astype(np.float64)
    e = np.exp(x - x.max(1, keepdims=True))
    right = (e / e.sum(1, keepdims=True)).astype(np.float32)
    for factor, code in ((1, 0), (1 + 1e-6, 0), (1 + 1e-4, 1), (np.nan, 1), (np.inf, 1)):
        outputs(folder, home, {1: (right * np.float32(factor)).astype(np.float32)})
        assert folder.run() == code, (factor, folder.said)
    assert "p1: WRONG: 6000 of 6000 compared elements" in folder.said


@builds
def test_every_dtype(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("types")
    made = inputs_of(folder, home)
    for slot, dtype in enumerate(DATA):
        values = numbers.values_for(dtype, coarse=False)
        wanted = numbers.generated(slot, dtype, 700, values)
        assert made[slot].tobytes() == wanted.tobytes(), dtype
        assert len(np.unique(wanted.astype(np.float64))) > 1
    count = len(DATA)
    results = {count + slot: made[slot][::-1].copy() for slot in range(count)}
    outputs(folder, home, results)
    assert folder.run() == 0, folder.said
    for slot, dtype in enumerate(DATA):
        worse = results[count + slot].copy()
        worse[7] = worse[next(n for n in range(700) if worse[n] != worse[7])]
        outputs(folder, home, {count + slot: worse})
        assert folder.run() == 1
        shown = worse[7].astype(np.float64) if dtype.is_float else worse[7].astype(object)
        assert f"p{count + slot}[7] is {shown:.17g}," in folder.said or (
            f"p{count + slot}[7] is {int(shown)}," in folder.said
        ), (dtype, folder.said)
        folder.after(outputs(folder, home, {})[count + slot], results[count + slot])


@builds
def test_sums_of_a_tensor_core_are_exact_for_generated_inputs(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder = exported("matrix")
    made = inputs_of(folder, home)
    a, b = (made[s].reshape(-1, 256).astype(np.float64) for s in (0, 1))
    right = (a @ b.T).astype(np.float32).astype(dtypes.bf16.numpy)
    outputs(folder, home, {2: right})
    assert folder.run() == 0, folder.said
    assert "p2: right: all 32768 elements, bit for bit" in folder.said


@builds
def test_split_and_counted_sums(exported: Callable[[str], Folder], home: Path) -> None:
    for name, out in (("total", 1), ("halves", 1)):
        folder, (kernel, _) = exported(name), kernel_of(home, name)
        assert isinstance(kernel, Kernel)
        x = inputs_of(folder, home)[0]
        outputs(folder, home, {out: np.asarray(kernel(x))})
        assert folder.run() == 0, folder.said


@builds
def test_the_users_own_arrays_are_kept(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("picked")
    x = inputs_of(folder, home)[0]
    assert x.tobytes() == np.linspace(1, 4, 40, dtype=np.float32).tobytes()
    outputs(folder, home, {1: np.log(x)})
    assert folder.run() == 0, folder.said
    (folder.path / "picked_check.bin").rename(folder.path / "elsewhere")
    assert (
        folder.run() == 2 and "picked_check.bin is not there, or not the 320 bytes" in folder.said
    )
    (folder.path / "elsewhere").rename(folder.path / "picked_check.bin")


@builds
def test_no_work_is_not_launched(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("empty")
    folder.has_parameters_of(sources_of(home, "empty"))
    assert folder.run() == 0, folder.said
    assert not folder.calls("launch") and "p1: right: all 0 elements" in folder.said


# ---- what goes wrong
@builds
@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"FAKE_CUDA_GPUS": "0"}, 77, "no GPU can be used: the driver shows none"),
        ({"FAKE_CUDA_FAIL": "cuInit 100"}, 77, "no GPU can be used: the driver shows none"),
        ({"FAKE_CUDA_SM": "80"}, 77, "machine code is for sm_90a, this GPU is sm_80."),
        ({"FAKE_CUDA_SM": "100"}, 77, "machine code is for sm_90a, this GPU is sm_100."),
        ({"FAKE_CUDA_CLUSTERS": "0"}, 77, "no room for one of its clusters of 16 blocks"),
        ({"FAKE_CUDA_THREADS": "64"}, 77, "its blocks have 128 threads, this GPU allows 64"),
        ({"FAKE_CUDA_FAIL": "cuModuleLoadData 209"}, 2, "many: loading its machine code, made for"),
        ({"FAKE_CUDA_FAIL": "cuModuleGetFunction 500"}, 2, "FAKE_ERROR_500 (as told)"),
        ({"FAKE_CUDA_FAIL": "cuFuncSetAttribute 1"}, 2, "clusters of more than 8 blocks"),
        ({"FAKE_CUDA_FAIL": "cuLaunchKernel 701"}, 2, "many: launching it: FAKE_ERROR_701"),
        ({"FAKE_CUDA_FAIL": "cuMemAlloc 2"}, 2, "p0: FAKE_ERROR_2 (as told)"),
    ],
)
def test_a_refusal_has_its_words_and_its_code(
    exported: Callable[[str], Folder],
    home: Path,
    settings: dict[str, str],
    code: int,
    words: str,
) -> None:
    folder = exported("sixteen")
    folder.has_parameters_of(sources_of(home, "sixteen"))
    assert folder.run(**settings) == code, folder.said
    assert words in folder.said
    assert len(folder.calls("unload")) in (0, len(folder.calls("load")))


@builds
def test_without_a_driver(exported: Callable[[str], Folder], home: Path) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a libcuda.so.1: its absence cannot be shown")
    folder = exported("scaled")
    assert folder.run(LD_LIBRARY_PATH="") == 77
    assert folder.said == (
        "no GPU can be used: libcuda.so.1 is missing. Install an NVIDIA driver.\n"
    )


@builds
def test_an_assert_that_fails_is_told(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("asserted")
    folder.has_parameters_of(sources_of(home, "asserted"))
    assert folder.run(FAKE_CUDA_ASSERT="0") == 2
    assert (
        "checked_square" not in folder.said
        and "asserted: assert failed: x must not be negative, in block (1, 2, 3), thread (4, 5, 6)"
        in folder.said
    )
    (report,) = folder.calls("host")
    assert (report["bytes"], report["flags"]) == ("32", "3")
    assert folder.calls("global")[0]["name"] == "uopc_report"


MISUSE = """\
#include "total.h"
#include "cuda_driver.h"
#include <stdio.h>
int main(void)
{
    cuda_driver cuda;
    CUcontext context;
    CUdeviceptr x, y;
    total_kernel *kernel;
    if (cuda_driver_open(&cuda) != NULL) return 1;
    printf("%d %s\\n", total_init(&kernel), total_error());
    cuda.DevicePrimaryCtxRetain(&context, 0);
    cuda.CtxPushCurrent(context);
    printf("%d %s\\n", total_init(NULL), total_error());
    if (total_init(&kernel)) return 2;
    cuda.MemAlloc(&x, TOTAL_P0_BYTES + 64);
    cuda.MemAlloc(&y, TOTAL_P1_BYTES);
    printf("%d %s\\n", total_launch(NULL, NULL, x, y), total_error());
    printf("%d %s\\n", total_launch(kernel, NULL, x, 0), total_error());
    printf("%d %s\\n", total_launch(kernel, NULL, x + 4, y), total_error());
    printf("%d %s\\n", total_launch(kernel, NULL, x, x + TOTAL_P0_BYTES - 4), total_error());
    printf("%d\\n", total_launch(kernel, NULL, x, x + TOTAL_P0_BYTES));
    printf("%d\\n", total_destroy(kernel));
    return total_destroy(NULL);
}
"""


@builds
def test_a_wrong_call_is_refused_in_words(
    exported: Callable[[str], Folder], home: Path, tmp_path: Path
) -> None:
    folder = exported("total")
    folder.has_parameters_of(sources_of(home, "total"))
    shutil.copytree(folder.path, tmp_path / "total")
    (tmp_path / "total" / "main.c").write_text(MISUSE)
    mine = Folder(tmp_path / "total", "total", folder.driver)
    mine.make()
    assert mine.run() == 0, mine.said
    assert mine.said == (
        "-2 total_init: no CUDA context is current. Call cuCtxSetCurrent, or cudaFree(0) of the "
        "runtime, before.\n"
        "-4 total_init: NULL in place of a handle\n"
        "-4 total_launch: NULL in place of a handle\n"
        "-4 total_launch: p1 is NULL\n"
        "-4 total_launch: the address of p0 is no multiple of 16\n"
        "-4 total_launch: p0 and p1 overlap, and the kernel writes one of them\n"
        "0\n0\n"
    )
    assert len(mine.calls("launch")) == 1


@builds
@pytest.mark.parametrize(("compiler", "standard"), [("cc", "c99"), ("c++", "c++11")])
@pytest.mark.parametrize("name", ["total", "asserted", "scaled"])
def test_the_header_is_c_and_cxx(
    exported: Callable[[str], Folder], compiler: str, standard: str, name: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"the header is not compiled: {compiler} is not installed")
    language = "c++" if compiler == "c++" else "c"
    header = exported(name).path / f"{name}.h"
    flags = [f"-std={standard}", "-Wall", "-Werror", f"-I{cuda_home()}/include"]
    subprocess.run([compiler, "-x", language, "-fsyntax-only", *flags, header], check=True)


# ---- the CUDA text
@compiles
@pytest.mark.parametrize("name", ["scaled", "total", "halves", "wide", "matrix", "asserted"])
def test_nvcc_takes_the_text(exported: Callable[[str], Folder], home: Path, name: str) -> None:
    folder, sources = exported(name), sources_of(home, name)
    folder.make("from-source")
    folder.has_parameters_of(sources)
    assert folder.run(f"{name}_from_source") in (1, 0), folder.said
    launched = [line["function"] for line in folder.calls("launch")]
    assert launched == [s.name for s in sources] * 5
    built = sorted((folder.path / "build").glob("*.cubin"))
    for n, cubin in enumerate(built):
        loaded = (folder.driver / f"module_{n}").read_bytes()
        assert loaded == cubin.read_bytes()[: len(loaded)]
    assert len(built) == len(sources)


@compiles
def test_the_text_for_another_arch(exported: Callable[[str], Folder], home: Path) -> None:
    folder = exported("scaled")
    folder.make("from-source", "ARCH=sm_100")
    folder.has_parameters_of(sources_of(home, "scaled"))
    assert folder.run("scaled_from_source", FAKE_CUDA_SM="100") == 1  # launched; nothing computed
    assert folder.calls("launch")
    assert folder.run("scaled_from_source") == 77 and "is for sm_100, this GPU" in folder.said
    folder.make("from-source")  # a new ARCH builds anew
    assert folder.run("scaled_from_source") == 1 and folder.calls("launch")


def test_the_text_is_the_one_that_was_compiled(
    exported: Callable[[str], Folder], home: Path
) -> None:
    folder = exported("halves")
    for n, step in enumerate(kernel_of(home, "halves")[1], 1):
        text = (folder.path / f"halves_step{n}.cu").read_text()
        head, _, rest = text.partition("\n\n")
        assert rest == step.cuda_source == step.cubin.text
        assert all(line.startswith("//") for line in head.splitlines())
        grid, block = step.launch_dims
        assert f"// grid {grid}, block {block}, " in head and f"launch {n} of 2" in head


# ---- the files
def test_an_export_is_the_same_wherever_it_is_made(
    exported: Callable[[str], Folder], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = exported("matrix")
    monkeypatch.chdir(home)
    assert main(["export", "model.py:matrix", "-o", "again", "--target", TARGET]) == 0
    for file in sorted((home / "again").iterdir()):
        content = file.read_bytes()
        assert content == (folder.path / file.name).read_bytes(), file.name
        assert str(home).encode() not in content
    names = {f.name for f in (home / "again").iterdir()}
    assert names == {
        *("README.txt", "Makefile", "main.c", "cuda_driver.h", "matrix.h", "matrix.c", MANIFEST),
        *("matrix_cubin.h", "matrix.cu", "matrix.cubin", "matrix_check.bin"),
    }
    readme = (home / "again" / "README.txt").read_text()
    assert "uopc export model.py:matrix --target sm_90a\n" in readme
    assert "p0: reads bf16[256, 256], at a multiple of 16 bytes" in readme
    assert max(map(len, readme.splitlines())) <= 100


def test_options_are_in_the_command_that_is_told(home: Path, tmp_path: Path) -> None:
    opts = '{"local": {"1": 64}}'
    arguments = ["--opts", opts, "--name", "mine", "--no-check", "--target", "sm_80"]
    assert main(["export", f"{home}/model.py:scaled", "-o", str(tmp_path / "x"), *arguments]) == 0
    text = (tmp_path / "x" / "mine.cu").read_text()
    assert "// Made by uopc" in text and "model.py:scaled --target sm_80 --opts" in text
    assert "--name mine --no-check\n" in text and "void __launch_bounds__(64)" in text
    assert not (tmp_path / "x" / "mine_check.bin").exists()
    assert (
        "not compared: it was exported with --no-check" in (tmp_path / "x" / "main.c").read_text()
    )


@builds
def test_without_results_nothing_is_compared(home: Path, tmp_path: Path) -> None:
    to = tmp_path / "x"
    given = [f"{home}/model.py:scaled", "-o", str(to), "--target", TARGET, "--no-check"]
    assert main(["export", *given]) == 0
    folder = Folder(to, "scaled", tmp_path / "driver")
    folder.make()
    folder.has_parameters_of(sources_of(home, "scaled"))
    assert folder.run() == 0
    assert "not compared: it was exported with --no-check" in folder.said
    assert "right" not in folder.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.py:scaled", "--target", "cpu"], "--target cpu: what is exported runs on a GPU"),
        (["model.py:scaled", "--target", "emulated"], "--target emulated: what is exported runs"),
        (["model.py:scaled", "--target", "sm_1"], "sm_1"),
        (["model.py:for_cpu"], "for_cpu is for cpu; what is exported runs on a GPU"),
        (["model.py:halves", "--target", "sm_80"], "--target comes too late"),
        (["model.py:scaled", "--name", "a-b"], "a kernel cannot be called 'a-b'"),
        (["model.py:scaled", "--name", "main"], "a kernel cannot be called 'main'"),
        (["model.py:nothing"], "has no nothing"),
    ],
)
def test_what_cannot_be_exported(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(home)
    assert main(["export", *arguments, "-o", str(tmp_path / "x")]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x").exists()


def test_a_launch_that_its_target_does_not_allow() -> None:
    body = product(100, 100, 8)
    small = replace(named_target(TARGET), max_grid=(1, 1, 1))
    kernel = compile(body, None, small, "k")
    with pytest.raises(TargetError, match=r"k wants grid \w of \d+ blocks, sm_90a allows 1\."):
        describe("k", "uopc", kernel, kernel.steps, (body,))


def test_a_name_that_c_has_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "odd.py").write_text(MODEL.replace("soft = ", "main = "))
    given = [f"{home}/odd.py:main", "-o", str(tmp_path / "x"), "--target", TARGET, "--no-check"]
    assert main(["export", *given]) == 0
    assert (tmp_path / "x" / "kernel.h").exists()


def test_the_target_is_this_gpus_or_sm_80(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "why_unusable", lambda: "no GPU")
    given = [f"{home}/model.py:scaled", "-o", str(tmp_path / "x"), "--no-check"]
    assert main(["export", *given]) == 0
    assert '_ARCH "sm_80"' in (tmp_path / "x" / "scaled_cubin.h").read_text()


def test_own_arrays_that_are_too_large_are_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(numbers, "FILE_MAX_BYTES", 100)
    given = [f"{home}/model.py:picked", "-o", str(tmp_path / "x"), "--target", TARGET]
    assert main(["export", *given]) == 2
    assert "the arrays of its file have" in capsys.readouterr().err


# ---- the folder
FILES = {"a.c": b"int a;\n", "b.h": b"int b;\n"}


def test_an_own_folder_is_written_again(tmp_path: Path) -> None:
    to = tmp_path / "deep" / "x"
    write_folder(to, FILES, "uopc", force=False)
    (to / "notes.txt").write_text("mine")
    (to / "build").mkdir()
    write_folder(to, {"a.c": b"int c;\n"}, "uopc", force=False)
    assert (to / "a.c").read_bytes() == b"int c;\n" and not (to / "b.h").exists()
    assert (to / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in to.iterdir()) == ["a.c", "build", MANIFEST, "notes.txt"]


def test_nothing_of_others_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and no export wrote it"):
        write_folder(tmp_path, FILES, "uopc", force=False)
    assert [p.name for p in tmp_path.iterdir()] == ["a.c"]
    (tmp_path / "other").write_text("mine too")
    write_folder(tmp_path, FILES, "uopc", force=True)
    assert (tmp_path / "a.c").read_bytes() == FILES["a.c"]
    assert (tmp_path / "other").read_text() == "mine too"


def test_what_was_changed_is_not_overwritten(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", FILES, "uopc", force=False)
    (tmp_path / "x" / "b.h").write_text("changed")
    for files in (FILES, {"a.c": b""}):  # also where the export has no such file any more
        with pytest.raises(UsageError, match=r"b\.h changed since the export"):
            write_folder(tmp_path / "x", files, "uopc", force=False)
    with pytest.raises(UsageError, match=r"b\.h, c\.c changed"):
        (tmp_path / "x" / "c.c").write_text("mine")
        write_folder(tmp_path / "x", FILES | {"c.c": b""}, "uopc", force=False)
    assert (tmp_path / "x" / "b.h").read_text() == "changed"


def test_a_manifest_names_files_of_its_folder_only(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", FILES, "uopc", force=False)
    outside = tmp_path / "b.h"
    outside.write_bytes(FILES["b.h"])
    manifest = tmp_path / "x" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"b.h"', '"../b.h"'))
    (tmp_path / "x" / "b.h").unlink()
    write_folder(tmp_path / "x", FILES, "uopc", force=False)
    write_folder(tmp_path / "x", {"a.c": b""}, "uopc", force=True)
    assert outside.exists()


def test_a_file_or_a_read_only_disk_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="x is a file"):
        write_folder(tmp_path / "x", FILES, "uopc", force=True)
    with pytest.raises(ToolchainError, match="cannot be written"):
        write_folder(tmp_path / "x" / "y", FILES, "uopc", force=True)


# ---- numbers
def test_generated_numbers_are_what_they_say() -> None:
    fine = numbers.generated(3, dtypes.f32, 100_000, None)
    assert fine.min() >= -1 and fine.max() < 1 and abs(float(fine.mean())) < 0.01
    assert ((fine.astype(np.float64) * 2**23) % 1 == 0).all()
    parts = [numbers.random_bits(3, first, 10) for first in (0, 10)]
    assert (np.concatenate(parts) == numbers.random_bits(3, 0, 20)).all()
    assert (numbers.random_bits(4, 0, 20) != numbers.random_bits(3, 0, 20)).all()
    # SplitMix64 from a zero state, the first number of its reference implementation
    state = np.array([numbers.STEP], np.uint64)
    assert int(numbers.mixed(state)[0]) == 0xE220A8397B1DCDAF


def test_every_value_is_exact_in_its_dtype() -> None:
    for dtype in DATA:
        for coarse in (False, True):
            values = numbers.values_for(dtype, coarse)
            if values is None:
                continue
            wide = values.astype(np.float64)
            assert len(set(wide.tolist())) == values.size > 1
            assert (wide * 128 % 1 == 0).all()


def test_a_checksum_sees_values_places_and_one_nan() -> None:
    x = numbers.generated(0, dtypes.f32, 1000, None)
    swapped = x.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert numbers.checksum(x) == numbers.checksum(x.copy())
    assert numbers.checksum(x) != numbers.checksum(swapped)
    nans = np.array([0x7FC00000, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert numbers.checksum(nans) == numbers.checksum(np.full(3, np.nan, np.float32))


def test_huge_results_have_a_finite_tolerance() -> None:
    assert numbers._typical(np.array([1e300, -1e300, np.inf, np.nan])) == 1e300
    assert numbers._typical(np.array([3.0, 4.0])) == pytest.approx(12.5**0.5)
    assert numbers._typical(np.zeros(3)) == numbers._typical(np.array([np.nan])) == 0


def test_positions_are_within_and_have_both_ends() -> None:
    assert numbers.positions(1, 100).tolist() == list(range(100))
    for size in (numbers.KEPT_WHOLE + 1, 10**7):
        found = numbers.positions(1, size)
        assert found.size == numbers.SAMPLES and found.min() == 0 and found.max() == size - 1


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (product(8, 8, 64), True),
        (product(8, 8, 64, dtypes.bf16).cast(dtypes.f32).sqrt(), True),
        (product(8, 8, 1 << 18), False),  # 2**24 units
        (product(8, 8, (1 << 18) - 1), True),
        (param(0, 8, 64).reduce(Ops.MAX, 1), True),
        ((param(0, 8, 64) * 0.3).reduce(Ops.ADD, 1), False),
        ((param(0, 8, 64) * param(1, 8, 64) * param(2, 8, 64)).reduce(Ops.ADD, 1), False),
        (param(0, 8, 64).reduce(Ops.ADD, 1).reduce(Ops.ADD, 1), False),
        (param(0, 8, 64).exp(), False),
        (softmax(param(0, 8, 64)), False),
    ],
)
def test_which_bits_are_known_to_a_kernel_of_other_choices(body: UOp, known: bool) -> None:
    kernel = compile(body, None, TARGET, "k")
    exported = describe("k", "uopc", kernel, kernel.steps, (body,))
    assert bits_are_known(exported, (body,), emulated=False, coarse=True) is known
    assert not bits_are_known(exported, (body,), emulated=False, coarse=False)
    assert not bits_are_known(exported, (), emulated=False, coarse=True)


def test_a_kernel_too_large_to_emulate_is_compared_with_the_native_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = []
    for limit in (numbers.EMULATED_MAX_WORK, 0):
        monkeypatch.setattr(numbers, "EMULATED_MAX_WORK", limit)
        to = tmp_path / str(limit)
        given = [f"{home}/model.py:matrix", "-o", str(to), "--target", TARGET]
        assert main(["export", *given]) == 0
        contents.append((to / "matrix_check.bin").read_bytes())
        assert "bit for bit with the" in capsys.readouterr().out
    assert contents[0] == contents[1]
    given = [f"{home}/model.py:hand", "-o", str(tmp_path / "hand"), "--target", TARGET]
    assert main(["export", *given]) == 0
    assert "checked  no: its emulation takes" in capsys.readouterr().out


def test_tensors_are_no_one_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "lazy.py"
    model.write_text("from uopc.tensor import empty\n\ntwice = empty(64) * 2.0\n")
    assert main(["export", f"{model}:twice", "-o", str(tmp_path / "to"), "--target", TARGET]) == 2
    assert "twice is tensors, of which a schedule makes kernels: one" in capsys.readouterr().err


# ---- on a GPU
def launched(home: Path, name: str, *targets: str) -> str:
    """What the built program of a kernel says on this GPU; it must find its results right."""
    if why_no_build():
        pytest.skip(why_no_build())
    to = home / "gpu" / name
    arguments = [] if name in ("halves", "sixteen") else ["--target", "cuda"]
    assert main(["export", f"{home}/model.py:{name}", "-o", str(to), *arguments]) == 0
    done = subprocess.run(
        ["make", *(targets or ["run"]), f"CUDA_HOME={cuda_home()}"],
        cwd=to,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


GPU_KERNELS = "scaled total soft wide large matrix eight hand types picked empty asserted".split()
#: with arrays of their own
GPU_EXAMPLES = """votes warp_transpose named_barriers histogram atomic_sum last_block print_lanes
    mbarrier_handover copy_ring_3 mma_product bulk_tile_128 bulk_transpose wgmma_f8
    specialised_product""".split()


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_KERNELS)
def test_launched(home: Path, name: str) -> None:
    said = launched(home, name)
    assert ": right: " in said and "time: median" in said
    if name in ("scaled", "total", "matrix", "hand", "types"):
        assert "bit for bit" in said


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_EXAMPLES)
def test_launched_examples(home: Path, name: str) -> None:
    on = device_target()
    if not runs_on(EXAMPLES[name].target, on.sm):
        pytest.skip(f"{name} is for {EXAMPLES[name].target}, this GPU is {on}")
    writes = name != "print_lanes"  # of what it prints nothing is compared
    assert (": right: " if writes else "block 1 thread 1: 0.5") in launched(home, name)


def test_a_kernel_that_writes_nothing_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = home / "prints"
    assert (
        main(["export", f"{home}/model.py:print_lanes", "-o", str(to), "--target", "sm_90a"]) == 0
    )
    assert "no: the kernel writes no array" in capsys.readouterr().out


def runs_on(arch: str, sm: int) -> bool:
    wanted = int(arch.removeprefix("sm_").rstrip("a"))
    return sm == wanted if arch.endswith("a") else sm >= wanted


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["halves", "sixteen"])
def test_launched_as_compiled(home: Path, name: str) -> None:
    if device_target().sm != 90:
        pytest.skip(f"{name} is compiled for sm_90a, this GPU is {device_target()}")
    assert ": right: " in launched(home, name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["scaled", "total", "wide", "matrix", "asserted"])
def test_launched_from_source(home: Path, name: str) -> None:
    if why_no_nvcc():
        pytest.skip(why_no_nvcc())
    assert ": right: " in launched(home, name, "run-from-source")
