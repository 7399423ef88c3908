"""The command line: `uopc demo`, `doctor`, `show`, `inspect`, `view`, `check`, `trace`, `profile`,
`export` and `cache`.

Errors that uopc raises on purpose are printed as their message: exit 2 where what was asked for is
at fault, 1 for any other.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from uopc import __version__
from uopc.demo import IMAGES, demo
from uopc.doctor import doctor
from uopc.errors import UopcError, UsageError
from uopc.examine import check_file, parse_triple, trace_file
from uopc.export import export
from uopc.inspecting import inspect
from uopc.printing import console, mib
from uopc.profiling import RUNS
from uopc.profiling.command import profile_file
from uopc.runtime.cache import clear, status
from uopc.show import View, show
from uopc.view import view as view_file

FAILED, USAGE = 1, 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` without the program's name.  Returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except UopcError as error:
        message = Text.assemble(("uopc: ", "bold red"), str(error))
        console(stderr=True).print(message, soft_wrap=True)
        return USAGE if isinstance(error, UsageError) else FAILED
    except BrokenPipeError:  # the reader, a pager or head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    out = console()
    if options.command == "demo":
        return demo(out, options.images)
    if options.command == "doctor":
        return doctor(out)
    if options.command == "show":
        return show(out, options.what, options.target, options.opts, options.view)
    if options.command == "inspect":
        o = options
        archs = [x.strip() for x in o.archs.split(",") if x.strip()]
        return inspect(out, o.what, o.target, o.opts, o.gpu, o.json, o.seed, archs)
    if options.command == "view":
        asked = (options.what, options.target, options.opts, options.gpu, options.output)
        return view_file(out, *asked)
    if options.command == "check":
        return check_file(out, options.what, options.all, options.seed)
    if options.command == "trace":
        threads = [parse_triple(text) for text in options.thread or ["0,0,0"]]
        only = [name.strip() for name in options.only.split(",") if name.strip()]
        block = parse_triple(options.block)
        return trace_file(out, options.what, threads, block, only, options.seed)
    if options.command == "profile":
        return profile_file(
            out,
            options.what,
            options.runs,
            options.device,
            options.seed,
            json=options.json,
            trace=options.trace,
            nvtx=options.nvtx,
        )
    if options.command == "export":
        o = options
        return export(out, o.what, o.to, o.target, o.opts, o.name, o.check, o.force)
    if options.command == "cache":
        return cache(out, options.clear)
    _parser().print_help()
    return 0


def cache(out: Console, empty: bool) -> int:
    """Say what the cache of compiled kernels holds, or empty it."""
    if empty:
        removed = clear()
        left = status()
        out.print(f"removed {removed} entries from {left.folder}", soft_wrap=True)
        if left.entries:
            out.print(f"{left.entries} entries could not be removed: is the folder writable?")
            return FAILED
        return 0
    now = status()
    out.print(f"{now.folder}", soft_wrap=True)
    out.print(f"{now.entries} entries, {mib(now.size_bytes)} of {mib(now.limit_bytes)}")
    if now.problem:
        out.print(f"not used: {now.problem}", soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="uopc", description="A kernel compiler to read.")
    parser.add_argument("--version", action="version", version=f"uopc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")

    run = commands.add_parser(
        "demo",
        help="classify handwritten digits on every device, beside numpy",
        description="Classify MNIST digits by the nearest class mean: three kernels, their CUDA "
        "source, launch and resources, run on every usable device and compared with numpy.",
    )
    run.add_argument(
        "--images", type=int, default=IMAGES, metavar="N", help=f"the first N (default {IMAGES})"
    )

    commands.add_parser(
        "doctor",
        help="what is installed, what is missing and how to get it",
        description="Look at compilers, driver, cache and settings, and run a small kernel on each "
        "usable device. Exit code 0 if one of them works.",
    )

    look = commands.add_parser(
        "show",
        help="source, launch and resources of a kernel of yours",
        description="Import FILE and show the kernel that NAME is: a shaped body, a list of them, "
        "a function without arguments that returns one, a SINK, or a compiled Kernel; or the "
        "kernels of lazy tensors, with what they store and why.",
    )
    look.add_argument("what", metavar="FILE:NAME")
    look.add_argument(
        "--target",
        help="cpu, emulated, cuda, or an arch such as sm_90a (default: this GPU, or sm_80)",
    )
    look.add_argument(
        "--opts",
        metavar="JSON",
        help='every choice, such as \'{"local": {"0": 8}, "upcast": {"0": 2}}\'',
    )
    view = look.add_mutually_exclusive_group()
    for name, text in (
        (View.PTX, "the PTX instead of the source"),
        (View.SASS, "the GPU's instructions instead of the source"),
        (View.STEPS, "the graph after every pass as well"),
    ):
        view.add_argument(
            f"--{name.value}",
            dest="view",
            action="store_const",
            const=name,
            default=View.SOURCE,
            help=text,
        )

    tell = commands.add_parser(
        "inspect",
        help="what a kernel of yours does to memory, what bounds it, what would mend it",
        description="Import FILE and report on the kernel that NAME is: each access with sectors "
        "and bank conflicts, registers and occupancy, roofline and expected time, warnings with "
        "the change of Opts that would mend them. It needs no GPU. Where data decides where an "
        "access goes, the emulator runs on the arrays of FILE, or on random ones.",
    )
    tell.add_argument("what", metavar="FILE:NAME")
    tell.add_argument(
        "--target", help="cuda, or an arch such as sm_90a (--gpu's, this one's, sm_80)"
    )
    tell.add_argument("--opts", metavar="JSON", help="every choice, as in uopc show")
    tell.add_argument("--gpu", metavar="NAME", help="the GPU of the times, such as H100")
    tell.add_argument(
        "--archs", default="", metavar="LIST", help="resources on these too: sm_80,sm_86,sm_90"
    )
    tell.add_argument("--json", metavar="FILE", help="all of it as JSON; - instead of the tables")
    tell.add_argument("--seed", type=int, default=0, metavar="N", help="of random arrays (0)")

    draw = commands.add_parser(
        "view",
        help="a kernel of yours as one HTML file: passes, source, accesses, limits",
        description="Import FILE and write an HTML page about the kernel that NAME is: the graph "
        "before and after every pass, the CUDA source beside your lines, where each warp goes in "
        "memory, occupancy, roofline and choices. It needs no GPU and no network.",
    )
    draw.add_argument("what", metavar="FILE:NAME")
    draw.add_argument("-o", dest="output", metavar="FILE", help="what to write (NAME.html)")
    draw.add_argument("--target", help="cuda, or an arch such as sm_90a (this GPU, or sm_80)")
    draw.add_argument("--opts", metavar="JSON", help="every choice, as in uopc show")
    draw.add_argument("--gpu", metavar="NAME", help="the GPU of the roofline, such as H100")

    found = (
        "Its arrays are what the function NAME returns after the kernel, as in (kernel, [x, y]), "
    )
    found += "or what FILE calls NAME_arrays; else random ones."
    judge = commands.add_parser(
        "check",
        help="races, bounds, barriers, ... of a kernel of yours, without a GPU",
        description="Import FILE and run the kernel that NAME is in the checked emulator. Exit "
        f"code 1 if it has a fault. {found} UOPC_CHECK=1 checks every emulated kernel likewise.",
    )
    judge.add_argument("what", metavar="FILE:NAME")
    judge.add_argument("--all", action="store_true", help="every fault, not only the first")
    follow = commands.add_parser(
        "trace",
        help="what chosen threads of a kernel of yours compute, value by value",
        description="Import FILE, emulate the kernel that NAME is, and print each value, access "
        f"and effect of some of its threads. {found}",
    )
    follow.add_argument("what", metavar="FILE:NAME")
    follow.add_argument(
        "--thread", action="append", metavar="X,Y,Z", help="threadIdx; may be given again (0,0,0)"
    )
    follow.add_argument("--block", default="0,0,0", metavar="X,Y,Z", help="blockIdx (0,0,0)")
    follow.add_argument("--only", default="", metavar="OPS", help="such as LOAD,STORE")
    for one in (judge, follow):
        one.add_argument("--seed", type=int, default=0, metavar="N", help="of random arrays (0)")

    clock = commands.add_parser(
        "profile",
        help="what each kernel of a program of yours takes, beside what bounds it",
        description="Import FILE, run the program that NAME is, and time each kernel where it "
        "runs. NAME: a function without arguments that computes Tensors (captured with jit or "
        "not), a lazy Tensor or a list of them, or a kernel as `uopc show` takes it. A function is "
        "called about three times RUNS, with all that it changes.",
    )
    clock.add_argument("what", metavar="FILE:NAME")
    clock.add_argument(
        "--runs", type=int, default=RUNS, metavar="N", help=f"of each measurement ({RUNS})"
    )
    clock.add_argument("--device", help="cpu, cuda or cuda:1 (default: as UOPC_DEVICE says)")
    clock.add_argument("--json", metavar="FILE", help="write all figures there")
    clock.add_argument("--trace", metavar="FILE", help="write a timeline for Perfetto there")
    clock.add_argument("--nvtx", action="store_true", help="ranges for Nsight (package nvtx)")
    clock.add_argument("--seed", type=int, default=0, metavar="N", help="of random arrays (0)")

    ship = commands.add_parser(
        "export",
        help="a kernel of yours as a folder of CUDA and C that builds without Python",
        description="Import FILE and write the kernel that NAME is into a folder: CUDA text and "
        "machine code of each launch, a C library on the CUDA driver API, a program that runs it "
        "and checks its results, and a Makefile. The results are computed here, for generated "
        "inputs or for what FILE calls NAME_arrays.",
    )
    ship.add_argument("what", metavar="FILE:NAME")
    ship.add_argument("-o", dest="to", metavar="DIR", required=True, help="the folder")
    ship.add_argument("--target", help="an arch such as sm_90a (default: this GPU, or sm_80)")
    ship.add_argument("--opts", metavar="JSON", help="every choice, as show takes them")
    ship.add_argument("--name", metavar="PREFIX", help="prefix of the C symbols (default: NAME)")
    ship.add_argument(
        "--no-check", dest="check", action="store_false", help="compute no results to compare with"
    )
    ship.add_argument(
        "--force", action="store_true", help="overwrite files of DIR that no export wrote"
    )

    keep = commands.add_parser("cache", help="the cache of compiled kernels: where, how large")
    keep.add_argument("--clear", action="store_true", help="remove every entry")
    return parser
