"""Compiled objects on disk: one file per entry, shared by any number of processes.

An entry's file is the compiled object itself followed by the compiler's log and a trailer, so that
a shared object is loaded straight from the cache: an ELF loader reads what its headers name and no
further.  Files appear by one rename and are never changed in place; an evicted file that some
process has loaded stays mapped there.  The trailer's digest covers key, object and log, so a torn
or misplaced file is a miss.  Nothing here ever raises: a cache that fails is a cache that misses,
and `status()` tells why.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

import platformdirs

from uopc.config import Config, current

_MAGIC = b"uopc\x00\x01\r\n"  # its last bytes show a file that went through text mode
_TRAILER = struct.Struct("<QQ32s8s")  # bytes of the object, bytes of the log, digest, magic
_PARTIAL = ".partial-"  # prefix of files that are being written
_FRESH_S = 3600.0  # a hit renews an entry's time at most this often; older partial files are litter
_KEEP = 0.8  # share of the bound that eviction leaves, so that it does not run at every write


@dataclass(frozen=True)
class Entry:
    """A compiled object: its bytes, the compiler's log, and the file that holds it."""

    code: bytes
    log: str
    path: Path


@dataclass(frozen=True)
class CacheStatus:
    """What `uopc cache` shows.  problem is "" while the cache works, else the last thing wrong."""

    folder: Path | None
    entries: int
    size_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    problem: str


def cache_key(kind: str, text: str, flags: tuple[str, ...], toolchain: str) -> str:
    """The file name of an entry: a digest of everything that its bytes depend on, then the kind."""
    digest = hashlib.sha256()
    # The package stands above this layer, so it is not imported: whoever calls has done that.
    version = getattr(sys.modules["uopc"], "__version__", "")
    for part in (kind, text, *flags, toolchain, version):
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)) + data)
    return f"{digest.hexdigest()}.{kind}"


class Cache:
    """A folder of compiled objects with a size bound; the least recently used entries go first."""

    def __init__(self, folder: Path | None, limit_bytes: int, problem: str = "") -> None:
        self.folder, self.limit_bytes, self.problem = folder, limit_bytes, problem
        self.hits = self.misses = 0
        self._lock = Lock()
        self._size: int | None = None  # bytes in the folder as far as this process knows

    @property
    def usable(self) -> bool:
        return self.folder is not None and self.limit_bytes > 0

    def get(self, key: str) -> Entry | None:
        """The entry stored under `key`, or None; a damaged file is removed."""
        entry = self._read(key) if self.usable else None
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def put(self, key: str, code: bytes, log: str = "") -> Path | None:
        """Store an entry.  Returns its file, or None where it cannot or must not be kept."""
        note = log.encode()
        size = len(code) + len(note) + _TRAILER.size
        if self.folder is None or size > self.limit_bytes:
            return None
        path = self.folder / key
        partial = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=self.folder)
            with open(handle, "wb") as file:
                file.write(code + note)
                file.write(_TRAILER.pack(len(code), len(note), _digest(key, code, note), _MAGIC))
            os.chmod(partial, 0o755)  # some systems map only files marked executable
            os.replace(partial, path)
        except OSError as error:
            if partial:
                with suppress(OSError):
                    os.unlink(partial)
            if not path.exists():  # else another process won a race that renaming cannot lose here
                self.problem = f"cannot write {self.folder}: {error.strerror or error}"
                return None
        self._added(size)
        return path

    def status(self) -> CacheStatus:
        """Folder, contents, this process's hits and misses, and what is wrong."""
        files = self._scan()
        size = sum(file.size for file in files)
        counts = (len(files), size, self.limit_bytes, self.hits, self.misses)
        return CacheStatus(self.folder, *counts, problem=self.problem)

    def clear(self) -> int:
        """Remove every entry.  Returns how many there were."""
        files = self._scan(partial=True)
        for file in files:
            with suppress(OSError):
                os.unlink(file.path)
        self._size = None
        return sum(not file.partial for file in files)

    def _read(self, key: str) -> Entry | None:
        assert self.folder is not None
        path = self.folder / key
        try:
            with open(path, "rb") as file:
                data = file.read()
                age_s = time.time() - os.fstat(file.fileno()).st_mtime
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.problem = f"cannot read {self.folder}: {error.strerror or error}"
            return None
        entry = _unpack(key, data, path)
        with suppress(OSError):
            if entry is None:
                os.unlink(path)
            elif age_s > _FRESH_S:
                os.utime(path)
        return entry

    def _added(self, size_bytes: int) -> None:
        with self._lock:
            if self._size is not None:
                self._size += size_bytes
            if self._size is None or self._size > self.limit_bytes:
                self._size = self._evict()

    def _evict(self) -> int:
        """Remove litter, then the oldest entries while the bound is passed.  Returns bytes left."""
        files = self._scan(partial=True)
        now = time.time()
        for file in files:
            if file.partial and now - file.used > _FRESH_S:
                with suppress(OSError):
                    os.unlink(file.path)
        entries = sorted((f for f in files if not f.partial), key=lambda file: file.used)
        size = sum(file.size for file in entries)
        if size <= self.limit_bytes:
            return size
        for file in entries[:-1]:  # the newest was asked for just now
            if size <= self.limit_bytes * _KEEP:
                break
            with suppress(OSError):
                os.unlink(file.path)
            size -= file.size
        return size

    def _scan(self, partial: bool = False) -> list[_File]:
        """The entries in the folder (and files being written), as far as they can be seen."""
        files = []
        with suppress(OSError):
            for item in os.scandir(self.folder) if self.folder else ():
                unfinished = item.name.startswith(_PARTIAL)
                if (unfinished and not partial) or not (unfinished or _is_entry(item.name)):
                    continue
                with suppress(OSError):  # gone since
                    info = item.stat()
                    files.append(_File(item.path, info.st_size, info.st_mtime, unfinished))
        return files


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    used: float
    partial: bool


def _is_entry(name: str) -> bool:
    """Only names that `cache_key` makes are ours to count and remove."""
    digest, _, kind = name.partition(".")
    return len(digest) == 64 and kind.isalnum() and set(digest) <= set("0123456789abcdef")


def _digest(key: str, code: bytes, note: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code + note).digest()


def _unpack(key: str, data: bytes, path: Path) -> Entry | None:
    """The entry that a file holds, or None where it is not whole or not this key's."""
    if len(data) < _TRAILER.size:
        return None
    code_bytes, note_bytes, digest, magic = _TRAILER.unpack(data[-_TRAILER.size :])
    if magic != _MAGIC or code_bytes + note_bytes + _TRAILER.size != len(data):
        return None
    code, note = data[:code_bytes], data[code_bytes : -_TRAILER.size]
    if digest != _digest(key, code, note):
        return None
    return Entry(code, note.decode(errors="replace"), path)


def open_cache(config: Config | None = None) -> Cache:
    """The cache that a configuration names: one object per folder and bound in a process."""
    config = config or current()
    return _open(config.cache_dir, config.cache_mb)


@lru_cache(maxsize=16)
def _open(folder: Path | None, limit_mb: int) -> Cache:
    if limit_mb <= 0:
        return Cache(folder, 0, "switched off by UOPC_CACHE_MB=0")
    if folder is None:
        folder = platformdirs.user_cache_path("uopc")
        if not folder.is_absolute():  # no home folder is known
            return Cache(None, 0, "there is no home folder; set UOPC_CACHE_DIR")
    return Cache(folder, limit_mb << 20)


def status(config: Config | None = None) -> CacheStatus:
    """`Cache.status` of the configured cache."""
    return open_cache(config).status()


def clear(config: Config | None = None) -> int:
    """`Cache.clear` of the configured cache."""
    return open_cache(config).clear()
