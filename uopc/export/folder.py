"""Where the files of an export go: nothing is overwritten that an export did not write.

A manifest, `export.json`, names each file with the hash of its content.  A folder with a manifest
is ours, except for files that the manifest does not name or that were changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from uopc.errors import ToolchainError, UsageError

MANIFEST = "export.json"


def write_folder(to: Path, files: Mapping[str, bytes], command: str, force: bool) -> None:
    """Put files into a folder; each one is there whole or as it was before.

    What stands there and is no file of an export stays.  Files of an earlier export that this one
    has not are removed.  force: also overwrite files of these names that others wrote or changed.

    Raises UsageError where something else is in the way, ToolchainError where the disk refuses.
    """
    check_folder(to, force)
    before = _manifest(to)
    if not force:
        _refuse_changed(to, files, before)
    manifest = {"made by": command, "files": {name: _hash(files[name]) for name in sorted(files)}}
    content = json.dumps(manifest, indent=1).encode() + b"\n"
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=to) as made:
            for name, data in {**files, MANIFEST: content}.items():  # the manifest last
                Path(made, name).write_bytes(data)
            for name in {**files, MANIFEST: content}:
                os.replace(Path(made, name), to / name)
        for name in before.keys() - files.keys():
            if force or _is_as_written(to / name, before[name]):
                with suppress(FileNotFoundError):
                    (to / name).unlink()
    except OSError as error:
        raise ToolchainError(f"{to} cannot be written: {error.strerror or error}.") from None


def check_folder(to: Path, force: bool) -> None:
    """Raises UsageError where nothing can be put there, or where others have put something."""
    if not os.path.lexists(to):
        return
    if not to.is_dir():
        raise UsageError(f"{to} is a file. Give a folder with -o.")
    if not force and not _manifest(to) and any(to.iterdir()):
        raise UsageError(
            f"{to} is not empty, and no export wrote it. Give another folder with -o, or "
            "--force: then files of the same names are overwritten."
        )


def _refuse_changed(to: Path, files: Mapping[str, bytes], before: Mapping[str, str]) -> None:
    """Raises UsageError where files would be lost that are not as an export wrote them."""
    lost = sorted(
        name
        for name in {*files, *before}
        if os.path.lexists(to / name) and not _is_as_written(to / name, before.get(name, ""))
    )
    if lost:
        raise UsageError(
            f"{to}: {', '.join(lost)} changed since the export that wrote the folder. Give another "
            "folder with -o, or --force to overwrite."
        )


def _manifest(folder: Path) -> dict[str, str]:
    """The files of an earlier export, with the hashes of what it wrote; {} where there is none."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())["files"]
        return {name: said for name, said in found.items() if Path(name).name == name}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _is_as_written(file: Path, wanted: str) -> bool:
    try:
        return not file.is_symlink() and _hash(file.read_bytes()) == wanted
    except OSError:
        return False


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
