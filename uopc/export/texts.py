"""The files of an exported kernel, from templates: `uopc/export/templates`.

They are the same for the same kernel, target and versions of uopc and NVRTC: no dates, no paths.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from uopc import __version__
from uopc.dtype import DType, Kind
from uopc.export import numbers as of_numbers
from uopc.export.described import Array, Exported, Part
from uopc.export.exactness import SMALL
from uopc.export.numbers import Numbers, Start
from uopc.kernel import TensorMapUse
from uopc.layouts import TensorMapEncoding, tma_encoding
from uopc.runtime.arrays import HostArray
from uopc.runtime.asserts import VARIABLE

LAUNCHES = 100  # that the exported program times
WIDTH = 78
_BYTES_A_LINE = 16
_WORDS_A_LINE = 12
_TEMPLATES = Path(__file__).with_name("templates")

#: types of C that are passed by value; those without one are passed as their bits
_C_TYPES = {
    "bool": "uint8_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{"f16": "uint16_t", "bf16": "uint16_t", "f8e4m3": "uint8_t", "f8e5m2": "uint8_t"},
    **{"f32": "float", "f64": "double"},
}
#: (bits of the exponent, bits of the mantissa, whether there is an infinity) of floats
_FORMATS = {
    "f8e4m3": (4, 3, False),
    "f8e5m2": (5, 2, True),
    "f16": (5, 10, True),
    "bf16": (8, 7, True),
    "f32": (8, 23, True),
    "f64": (11, 52, True),
}
#: enumerators of cuda.h by the numbers of `uopc/layouts/tensor_map.py`
_MAP_TYPES = (
    *("UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64"),
    *("FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"),
)
_MAP_SWIZZLES = ("NONE", "32B", "64B", "128B")


@dataclass(frozen=True)
class _Map:
    """A tensor map of the launcher: the array it is of, and what the driver is told."""

    array: str
    form: TensorMapEncoding

    @property
    def type(self) -> str:
        return f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_TYPES[self.form.data_type]}"

    @property
    def swizzle(self) -> str:
        return f"CU_TENSOR_MAP_SWIZZLE_{_MAP_SWIZZLES[self.form.swizzle]}"

    @property
    def strides(self) -> tuple[int, ...]:
        """C wants an element, and the driver an address, where there are none."""
        return self.form.strides_bytes or (0,)


def files_of(exported: Exported, numbers: Numbers) -> dict[str, bytes]:
    """What the folder holds, by name."""
    name = exported.name
    check_file = _CheckFile.of(exported, numbers)
    context = _context(exported, numbers, check_file)
    files = {
        "README.txt": _rendered("README.txt", context),
        "Makefile": _rendered("Makefile", context),
        "main.c": _rendered("main.c", context),
        "cuda_driver.h": (_TEMPLATES / "cuda_driver.h").read_text(),
        f"{name}.h": _rendered("launcher.h", context),
        f"{name}.c": _rendered("launcher.c", context),
        f"{name}_cubin.h": _cubin_header(exported),
        **{f"{p.stem}.cu": _cuda_text(exported, p) for p in exported.parts},
    }
    made = {file: text.encode() for file, text in files.items()}
    made |= {f"{p.stem}.cubin": p.cubin for p in exported.parts}
    if check_file.content:
        made[f"{name}_check.bin"] = check_file.content
    return {file: made[file] for file in sorted(made)}


@dataclass(frozen=True)
class _CheckFile:
    """Kept arrays, then the samples of outputs; where each begins, in bytes, by slot."""

    content: bytes
    kept_at: dict[int, int]
    samples_at: dict[int, int]

    @classmethod
    def of(cls, exported: Exported, numbers: Numbers) -> _CheckFile:
        content = b""
        kept_at, samples_at = {}, {}
        for slot, array in sorted(numbers.kept.items()):
            kept_at[slot] = len(content)
            content += array.tobytes()
        for slot, wanted in sorted(numbers.wanted.items()):
            samples_at[slot] = len(content)
            content += wanted.samples.tobytes()
        return cls(content, kept_at, samples_at)


# ---- templates
def _rendered(template: str, context: dict[str, Any]) -> str:
    text = _ENVIRONMENT.get_template(template).render(context)
    return re.sub(r"\n{3,}", "\n\n", text)


def _c_string(text: str) -> str:
    """A C literal of the text's UTF-8."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    undefined=StrictUndefined,
    variable_start_string="@{",
    variable_end_string="}",
    block_start_string="@%",  # C's own signs stay C's
    block_end_string="%@",
    comment_start_string="@#",
    comment_end_string="#@",
    trim_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
_ENVIRONMENT.filters["c_string"] = _c_string


def _context(exported: Exported, numbers: Numbers, check_file: _CheckFile) -> dict[str, Any]:
    """What the templates name."""
    name, arrays = exported.name, exported.arrays
    count, runs = len(exported.parts), [p for p in exported.parts if not p.empty]
    maps = [m for p in runs for m in _maps(p)]
    used = {x.name for x in arrays for p in runs if x.slot in {q.slot for q in p.text.params}}
    unused = [x.name for x in arrays if x.name not in used] + (["k", "stream"] * (not runs))
    asserts = [f"ASSERTS_{n}" if p.text.asserts else "NULL" for n, p in enumerate(exported.parts)]
    return {
        "name": name,
        "NAME": name.upper(),
        "version": __version__,
        "command": exported.command,
        "target": exported.target,
        "what": f"{'one launch' if count == 1 else f'{count} launches'} on the CUDA driver API",
        "steps_text": "one launch" if count == 1 else f"{count} launches, one after the other",
        "launches_text": "one launch" if count == 1 else f"{count} launches",
        "title": f"{name}: a kernel for {exported.target}",
        "arrays": [_array(x, numbers, check_file) for x in arrays],
        "scalars": any(x.scalar for x in arrays),
        "workspace_bytes": exported.workspace_bytes,
        "clears_workspace": exported.clears_workspace,
        "partials": exported.partials if runs else (),
        "parts": _parts(exported),
        "all_empty": not runs,
        "maps": maps,
        "clusters": any(p.text.launch.cluster > 1 for p in exported.parts),
        "asserts": asserts if any(p.text.asserts for p in exported.parts) else [],
        "report_variable": VARIABLE,
        "unused": unused,
        "parameters": "".join(f", {_c_type(x)} {x.name}" for x in arrays),
        "names": "".join(f", {x.name}" for x in arrays),
        "array_names": ", ".join(x.name for x in arrays if not x.scalar),
        "numbers": numbers,
        "launches": LAUNCHES,
        "types": [_type(d) for d in dict.fromkeys(x.dtype for x in arrays)],
        "tables": [_table(x, v) for x in arrays if (v := _values(x, numbers)) is not None],
        "file_bytes": len(check_file.content),
        "check_file": f"{name}_check.bin" if check_file.content else "",
        "seed": of_numbers.SEED,
        "step": of_numbers.STEP,
        "multiply": of_numbers.MULTIPLY,
        "positions": of_numbers.POSITIONS,
        "nan_word": of_numbers.NAN_WORD,
        "edge": of_numbers.EDGE,
        "by_text": _by_text(numbers),
        "call": "".join(f", {x.name}" for x in arrays),
        "main_call": "".join(_passed(n, x) for n, x in enumerate(arrays)),
        "cubins_from_source": " ".join(f"build/{p.stem}.cubin" for p in exported.parts),
        "readme": _Readme(exported, numbers),
    }


def _array(x: Array, numbers: Numbers, check_file: _CheckFile) -> dict[str, Any]:
    """An array as the header and main.c name it."""
    start = numbers.start[x.slot]
    row: dict[str, Any] = {
        "name": x.name,
        "slot": x.slot,
        "dtype": x.dtype.name,
        "size": x.size,
        "size_bytes": x.size_bytes,
        "scalar": x.scalar,
        "written": x.written,
        "align": x.align,
        "does": _does(x),
        "described": _described(x),
        "start": start.value,
        "choices": "",
        "kept": "",
        "wanted": "",
    }
    if (values := _values(x, numbers)) is not None:
        row["choices"] = f",\n     .values = VALUES_{x.name}, .value_count = {values.size}"
    if start is Start.KEPT:
        row["kept"] = f", .kept_at = {check_file.kept_at[x.slot]}"
    if (wanted := numbers.wanted.get(x.slot)) is not None:
        row["wanted"] = (
            f",\n     .is_compared = 1, .samples = {wanted.samples.size}, "
            f".samples_at = {check_file.samples_at[x.slot]}, .exact = {int(wanted.exact)},\n"
        )
        row["wanted"] += (
            f"     .checksum = {wanted.checksum:#x}u"
            if wanted.exact
            else f"     .relative = {wanted.relative!r}, .absolute = {wanted.absolute!r}"
        )
    return row


def _values(x: Array, numbers: Numbers) -> HostArray | None:
    """What the elements of a generated array are chosen from."""
    return numbers.values.get(x.slot) if numbers.start[x.slot] is Start.GENERATED else None


def _table(x: Array, values: HostArray) -> dict[str, Any]:
    bits = 8 * x.dtype.itemsize
    words = [f"{word:#x}" for word in values.view(f"u{x.dtype.itemsize}").tolist()]
    rows = [words[n : n + _WORDS_A_LINE] for n in range(0, len(words), _WORDS_A_LINE)]
    return {"array": x.name, "bits": bits, "rows": [", ".join(row) for row in rows]}


def _type(d: DType) -> dict[str, Any]:
    exponent, mantissa, infinity = _FORMATS.get(d.name, (0, 0, False))
    return {
        "name": d.name,
        "bytes": d.itemsize,
        "exponent": exponent,
        "mantissa": mantissa,
        "signed": int(d.kind is Kind.INT),
        "infinity": int(infinity),
    }


def _parts(exported: Exported) -> list[dict[str, Any]]:
    """The launches with their numbers and the C expressions of their arguments."""
    made: list[dict[str, Any]] = []
    maps = 0
    for n, part in enumerate(exported.parts):
        arguments = [f"&p{p.slot}" for p in part.text.params]
        if not part.empty:
            uses = len(part.text.tensor_maps)
            arguments += [f"&map[{m}]" for m in range(maps, maps + uses)]
            maps += uses
        made.append(
            {
                "stem": part.stem,
                "text": part.text,
                "number": n,
                "empty": part.empty,
                "arguments": ", ".join(arguments),
            }
        )
    return made


def _maps(part: Part) -> Iterable[_Map]:
    return (_Map(f"p{use.slot}", _encoding(use)) for use in part.text.tensor_maps)


def _encoding(use: TensorMapUse) -> TensorMapEncoding:
    a = use.arg
    return tma_encoding(use.dtype.name, a.shape, a.strides, a.box, a.swizzle)


def _c_type(x: Array) -> str:
    return _C_TYPES[x.dtype.name] if x.scalar else "CUdeviceptr"


def _passed(n: int, x: Array) -> str:
    """What main.c passes for array n."""
    return f", *(const {_c_type(x)} *)arrays[{n}].host" if x.scalar else f", arrays[{n}].device"


def _does(x: Array) -> str:
    return " and ".join(["reads"] * x.read + ["writes"] * x.written) or "ignores"


def _described(x: Array) -> str:
    if x.scalar:
        as_bits = x.dtype.is_float and x.dtype.itemsize < 4
        return f"{x.dtype} by value{' (its bits)' * as_bits}"
    aligned = f", at a multiple of {x.align} bytes" if x.align > x.dtype.itemsize else ""
    return f"{x.dtype}[{', '.join(map(str, x.shape or (1,)))}]{aligned}"


def _by_text(numbers: Numbers) -> str:
    return {
        "emulated": "by the emulation of these launches",
        "native": "by the native CPU kernel of the same body",
        "": "",
    }[numbers.by]


# ---- other files
def _cubin_header(exported: Exported) -> str:
    """The machine code as C: what build/NAME_cubin.h is made like by the Makefile."""
    out = [f'#define {exported.name.upper()}_ARCH "{exported.target}"']
    for p in exported.parts:
        out.append(f"static const _Alignas(64) unsigned char {p.stem}_cubin[] = {{")
        for n in range(0, len(p.cubin), _BYTES_A_LINE):
            out.append("".join(f"0x{b:02x}," for b in p.cubin[n : n + _BYTES_A_LINE]))
        out.append("};")
    return "\n".join(out) + "\n"


def _cuda_text(exported: Exported, part: Part) -> str:
    """The CUDA text under a comment that says how it is launched."""
    launch = part.text.launch
    head = [
        f"{part.stem}: kernel {part.text.name} for {exported.target}, {_place(exported, part)}",
        f"Made by uopc {__version__}: {exported.command}",
        "",
        f"grid {launch.grid}, block {launch.block}, {_shared(part)}",
        *_parameters(exported, part),
        "",
        f"nvcc -cubin -std=c++17 --fmad=false -arch={exported.target} {part.stem}.cu",
    ]
    comment = "\n".join(f"// {line}".rstrip() for line in head)
    return f"{comment}\n\n{part.text}"


def _place(exported: Exported, part: Part) -> str:
    count = len(exported.parts)
    return (
        "the only launch" if count == 1 else f"launch {exported.parts.index(part) + 1} of {count}"
    )


def _shared(part: Part) -> str:
    """Shared memory, clusters and registers of a launch."""
    dynamic, cluster = part.text.dynamic_shared_bytes, part.text.launch.cluster
    kind = "dynamic" if dynamic else "static"
    text = f"{dynamic or part.static_shared_bytes} bytes of {kind} shared memory"
    text += f", clusters of {cluster} blocks along x" * (cluster > 1)
    return f"{text}, {part.registers} registers a thread"


def _parameters(exported: Exported, part: Part) -> list[str]:
    """Each parameter of one launch, and its tensor maps."""
    arrays = {x.slot: x for x in exported.arrays}
    partials = {x.slot: x for x in exported.partials}
    lines = []
    for p in part.text.params:
        does = "writes" if p.written else "reads"
        if (x := arrays.get(p.slot)) is not None:
            lines.append(f"{x.name}: {does if not x.scalar else 'takes'} {_described(x)}")
        else:
            between = partials[p.slot]
            why = "a counter, zero before and after" if between.counter else "between launches"
            lines.append(f"{between.name}: {does} {p.dtype}[{p.size}], workspace, {why}")
    for n, use in enumerate(part.text.tensor_maps):
        lines.append(f"map{n}: the tensor map of p{use.slot}, in boxes of {use.arg.box}")
    return lines


class _Readme:
    """The paragraphs of README.txt."""

    def __init__(self, exported: Exported, numbers: Numbers) -> None:
        self._x, self._numbers = exported, numbers

    @property
    def files(self) -> str:
        x, name = self._x, self._x.name
        kept = bool(self._numbers.kept) or bool(self._numbers.wanted)
        stems = [p.stem for p in x.parts]
        rows = [
            (f"{name}.h, {name}.c", "the library: load, launch, destroy, on the CUDA driver API"),
            ("cuda_driver.h", "how it finds the driver's functions"),
            (f"{name}_cubin.h", "the machine code as C, which is what the library contains"),
            (", ".join(f"{s}.cu" for s in stems), "CUDA C of each launch, as uopc made it"),
            (", ".join(f"{s}.cubin" for s in stems), "its machine code, for cuobjdump and others"),
            ("main.c", "a program that uses the library"),
            *(
                [(f"{name}_check.bin", "what must come out, and inputs that are not generated")]
                * kept
            ),
            ("Makefile", ""),
            ("export.json", "what uopc wrote here, so that it overwrites nothing else"),
        ]
        return "\n".join(_row(file, text) for file, text in rows)

    @property
    def launches(self) -> str:
        lines = []
        for n, p in enumerate(self._x.parts, 1):
            grid, block = p.text.launch.grid, p.text.launch.block
            nothing = " Its arrays are empty: it is left out." if p.empty else ""
            text = f"{n}. {p.text.name}: grid {grid}, block {block}, {_shared(p)}.{nothing}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="       ")
            lines += [f"       {line}" for line in _parameters(self._x, p)]
        if self._x.workspace_bytes:
            text = f"A handle holds a workspace of {self._x.workspace_bytes} bytes on the GPU."
            lines.append(f"    {text}")
        return "\n".join(lines)

    @property
    def checks(self) -> str:
        return "\n".join(_paragraph(text) for text in self._checks())

    def _checks(self) -> Sequence[str]:
        numbers = self._numbers
        if not numbers.by:
            return [f"Nothing: {numbers.why_not}. It launches the kernel and times it."]
        inputs = "the arrays of the kernel's own file" if numbers.kept else "generated inputs"
        said = [
            f"Results for {inputs}, computed {_by_text(numbers)} when this was exported. Generated "
            "elements are multiples of a power of two in [-1, 1], whole numbers below "
            f"{SMALL}, or bools."
        ]
        for x in self._x.arrays:
            if (wanted := numbers.wanted.get(x.slot)) is None:
                continue
            kept = wanted.samples.size
            some = "" if kept == x.size else f"; {kept} of them are kept to say which differ"
            if wanted.exact:
                text = (
                    f"{x.name}: all {x.size} elements, bit for bit (all NaNs are one value){some}."
                )
            else:
                text = (
                    f"{x.name}: {kept} of {x.size} elements, to {wanted.relative:.2g} of the value "
                    f"plus {wanted.absolute:.2g}. Its bits are not promised: functions such as exp "
                    "are the device's own, tensor cores and atomics add in an order of theirs, or "
                    "the results come from a kernel that sums in another order. The tolerance is "
                    "chosen, not proved."
                )
            if wanted.nans:
                text += f" {wanted.nans} of the {kept} are NaN."
            said.append(text)
        return said


def _row(file: str, text: str) -> str:
    if len(file) > 28:
        return f"    {file}\n    {'':30}{text}".rstrip()
    return f"    {file:30}{text}".rstrip()


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
