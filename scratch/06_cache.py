"""The disk cache: one file an entry, torn files are misses, every word of the key counts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from uopc.config import Config
from uopc.dtype import dtypes
from uopc.rangeify import lower
from uopc.render_c import render_c
from uopc.runtime import Program, status
from uopc.uop import buffer

x = np.arange(100, dtype=np.float32)


def run(factor: float, config: Config) -> bool:
    """Compile y = x * factor in a new Program, run it, and say whether it is right."""
    body, y = buffer(0, dtypes.f32, x.shape) * factor, np.zeros_like(x)
    source = render_c(lower(body, buffer(1, dtypes.f32, x.shape)), "scale")
    Program(source, config=config)(x, y)
    return np.array_equal(y, x * np.float32(factor))


with tempfile.TemporaryDirectory() as folder:
    config = Config(cache_dir=Path(folder))
    print("first run:", run(2.0, config), "entries:", status(config).entries)
    print("same text:", run(2.0, config), "entries:", status(config).entries)
    print("other text:", run(3.0, config), "entries:", status(config).entries)

    (entry, *_) = sorted(Path(folder).glob("*.so"))
    data = entry.read_bytes()
    print("an entry begins as a shared object:", data[:4])
    entry.write_bytes(data[: len(data) // 2])  # as if the disk had been full
    print("after damage:", run(2.0, config), run(3.0, config), "entries:", status(config).entries)
    print("the entry is whole again:", len(entry.read_bytes()) == len(data))
