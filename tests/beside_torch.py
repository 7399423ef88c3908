"""What benchmarks beside torch share.  Torch is never imported: it is given."""

from __future__ import annotations

from typing import Any, TextIO

from uopc.dtype import dtypes
from uopc.runtime.buffer import Buffer
from uopc.uop.node import Shape


def seen(torch: Any, buffer: Buffer, shape: Shape) -> Any:
    """A torch tensor over a Buffer's own memory."""
    same = {
        dtypes.bf16: (dtypes.i16, torch.bfloat16),
        dtypes.f8e4m3: (dtypes.i8, torch.float8_e4m3fn),
    }
    if buffer.dtype in same:  # no protocol that both speak has it
        bits, dtype = same[buffer.dtype]
        flat = torch.as_tensor(buffer.view(0, bits, buffer.size).array, device=buffer.device).view(
            dtype
        )
    else:
        flat = torch.as_tensor(buffer.array, device=buffer.device)
    assert flat.data_ptr() == buffer.address, "torch has copied the memory"
    return flat.reshape(shape)


class Output:
    """Lines to the terminal, and to a file where one is asked for."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def __call__(self, text: str) -> None:
        print(text, flush=True)
        if self._file is not None:
            self._file.write(text + "\n")
            self._file.flush()
