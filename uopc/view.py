"""`uopc view FILE:NAME`: a kernel of a user's file as one HTML file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from uopc.errors import UsageError
from uopc.inspect.page import page
from uopc.inspecting import reported_file


def view(
    out: Console, what: str, target: str | None, opts: str | None, gpu: str | None, to: str | None
) -> int:
    """Write the page of the kernel that FILE:NAME is.  Returns 0.

    target, opts: as in `uopc.show.show`; gpu: the name of the GPU to compare with, None: the usual
    one of the target; to: the file to write, None: NAME.html in this folder.

    Raises UsageError for what the caller can change, another UopcError for what failed.
    """
    name, made, _ = reported_file(what, target, opts, gpu)
    text = page(made, _folders(what))
    file = Path(f"{name}.html" if to is None else to)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}. Name another file with -o."
        ) from None
    size = file.stat().st_size
    out.print(f"wrote {file}, {-(-size // 1024)} KiB: open it in a browser", soft_wrap=True)
    return 0


def _folders(what: str) -> tuple[Path, ...]:
    """Where the user's lines are looked for.

    Files inside of the working folder are called by their path from there, others by their name.
    """
    here, own = Path().resolve(), Path(what.rpartition(":")[0]).resolve().parent
    return (here,) if own.is_relative_to(here) else (own, here)
