"""A cubin's machine instructions as text, through nvdisasm or cuobjdump."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from uopc.errors import ToolchainError


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    Raises ToolchainError where no disassembler is installed or it fails.
    """
    tool = find_disassembler()
    options = ("-c",) if Path(tool).stem == "nvdisasm" else ("-sass",)
    with tempfile.TemporaryDirectory(prefix="uopc-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = subprocess.run(
            [tool, *options, str(file)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ToolchainError(f"{tool} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@lru_cache(maxsize=1)
def find_disassembler() -> str:
    """nvdisasm from NVIDIA's Python package, else nvdisasm or cuobjdump on PATH.

    Raises ToolchainError that says how to get one.
    """
    folders = []
    if (spec := importlib.util.find_spec("nvidia")) and spec.submodule_search_locations:
        for root in spec.submodule_search_locations:
            folders += sorted(Path(root).glob("cu*/bin"), reverse=True)
            folders += sorted(Path(root).glob("cuda_nvdisasm/bin"))
    for folder in folders:
        tool = folder / "nvdisasm"
        if os.access(tool, os.X_OK):
            return str(tool)
    for name in ("nvdisasm", "cuobjdump"):
        if found := shutil.which(name):
            return found
    raise ToolchainError(
        "no disassembler found (tried nvdisasm, cuobjdump). "
        "Get one with: pip install nvidia-cuda-nvdisasm"
    )
