"""Triton's cache of compiled kernels as a file: what a CI keeps between its runs, so that nothing is compiled twice.

An *entry* is a folder of Triton's cache, named by the key of its kernel: the hash of the kernel's source, its
arguments' types, the options, the architecture and Triton itself. So an entry of other sources is never used, only
carried along. The cache cannot be copied as it is, because each entry has a list of its files with absolute paths; an
archive leaves it out, and ``load`` writes it for the folder at hand.

An archive is a tar file compressed by gzip, with the members ``KEY/FILE``. It is read as untrusted: a member of another
form, or metadata of another key, refuses the whole archive, and entries that exist are kept. But it holds machine code,
and no check can show what that was compiled from: load only what your own CI has saved.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.isa.record import KERNEL_SUFFIXES

MOST_FILE_BYTES, MOST_BYTES, MOST_ENTRIES = 64 << 20, 32 << 30, 200_000

_KEY = re.compile(r"[A-Z2-7]{52}")
_FILE = re.compile(r"(?!__grp__)[A-Za-z0-9_]{1,200}\.[a-z]{1,10}")
_LIST = "__grp__"
_STAGE = "iris-harness-load-"

Progress = Callable[[int], None]
"""Called with the number of entries done so far."""


@dataclass(frozen=True)
class Entry:
    """An entry of the cache; ``used``: seconds since the epoch of its last change or reading, as far as known."""

    path: Path
    bytes: int
    used: float


def folder() -> Path:
    """Return the folder of Triton's cache, which ``TRITON_CACHE_DIR`` and ``TRITON_HOME`` choose."""
    from triton import knobs

    return Path(knobs.cache.dir)


def key_of(kernel_hash: str) -> str:
    """Return the name of the entry of a kernel, from the hash that Triton and the evidence give it (64 hex digits)."""
    return base64.b32encode(bytes.fromhex(kernel_hash)).decode("ascii").rstrip("=")


def entries(cache: Path) -> Iterator[Entry]:
    """Yield the entries of a cache in the order of their keys; a folder that does not exist has none."""
    for path in sorted(cache.iterdir()) if cache.is_dir() else ():
        if _KEY.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            states = [file.stat() for file in path.iterdir() if file.is_file()]
            times = [max(state.st_mtime, state.st_atime) for state in states]
            yield Entry(path, sum(state.st_size for state in states), max(times, default=path.stat().st_mtime))


def save(cache: Path, archive: Path, keys: Collection[str] | None, progress: Progress = lambda done: None) -> int:
    """Write the kernels of ``cache`` to ``archive``, only those of ``keys`` if given; return how many.

    The same kernels give the same bytes. UsageError if there is none, or the archive cannot be written.
    """
    done = 0
    temporary = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with (
            open(temporary, "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for entry in entries(cache):
                files = [file for file in sorted(entry.path.iterdir()) if _is_kernels(file.name)]
                if (keys is None or entry.path.name in keys) and _metadata(files):
                    for file in files:
                        content = file.read_bytes()
                        member = tarfile.TarInfo(f"{entry.path.name}/{file.name}")
                        member.size, member.mode = len(content), 0o644
                        tar.addfile(member, io.BytesIO(content))
                    done += 1
                    progress(done)
        if done:
            os.replace(temporary, archive)
    except OSError as error:
        raise UsageError(f"{archive} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    if not done:
        raise UsageError(f"{cache} has no kernels to save: run the suite first, or check TRITON_CACHE_DIR")
    return done


def load(archive: Path, cache: Path, progress: Progress = lambda done: None) -> tuple[int, int]:
    """Add the kernels of ``archive`` to ``cache``; return how many are new, and how many it had.

    UsageError, and an unchanged cache, for anything that ``save`` does not write.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_STAGE, dir=cache) as staging:
        stage = Path(staging)
        try:
            _unpack(archive, stage, progress)
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise UsageError(f"{archive} is not an archive of kernels: {error}") from None
        except OSError as error:
            raise UsageError(f"{archive} cannot be loaded: {error.strerror}") from error
        staged = sorted(stage.iterdir())
        for entry in staged:
            _check(entry, archive)
        new = 0
        for entry in staged:
            place = cache / entry.name
            if not place.exists():
                _write_lists(entry, place)
                os.rename(entry, place)
                new += 1
    return new, len(staged) - new


def prune(cache: Path, days: float | None, most_bytes: int | None) -> tuple[int, int]:
    """Remove entries not used for ``days``, then the longest unused ones beyond ``most_bytes``; return how many, and
    their bytes. Not while kernels are compiled or run."""
    by_use = sorted(entries(cache), key=lambda entry: entry.used)
    total, now = sum(entry.bytes for entry in by_use), time.time()
    removed = freed = 0
    for entry in by_use:
        old = days is not None and now - entry.used > days * 86400
        if old or (most_bytes is not None and total - freed > most_bytes):
            shutil.rmtree(entry.path)
            removed, freed = removed + 1, freed + entry.bytes
    return removed, freed


# -- reading an archive ------------------------------------------------------------------------------------------------


def _unpack(archive: Path, stage: Path, progress: Progress) -> None:
    total, keys = 0, set[str]()
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            key, _, name = member.name.partition("/")
            if not (member.isreg() and _KEY.fullmatch(key) and _is_kernels(name)):
                raise UsageError(f"{archive}: {member.name!r:.120} is not a file of a kernel")
            total += member.size
            keys.add(key)
            if member.size > MOST_FILE_BYTES or total > MOST_BYTES or len(keys) > MOST_ENTRIES:
                raise UsageError(
                    f"{archive} is too large at {member.name!r:.120}: at most {MOST_FILE_BYTES >> 20} MiB in a file,"
                    f" {MOST_BYTES >> 30} GiB and {MOST_ENTRIES:,} kernels"
                )
            source = tar.extractfile(member)
            assert source is not None  # sanity check: a regular file
            (stage / key).mkdir(exist_ok=True)
            with open(stage / key / name, "xb") as file:
                shutil.copyfileobj(source, file)
            progress(len(keys))


def _check(entry: Path, archive: Path) -> None:
    """Raise UsageError unless the entry has metadata of its own key."""
    metadata = _metadata(sorted(entry.iterdir()))
    if not metadata:
        raise UsageError(f"{archive}: {entry.name} has no metadata of a kernel")
    for file in metadata:
        try:
            plain = json.loads(file.read_bytes())
            named = key_of(plain["hash"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UsageError(f"{archive}: {entry.name}/{file.name} is not the metadata of a kernel") from None
        if named != entry.name:
            raise UsageError(f"{archive}: {entry.name}/{file.name} is the metadata of another kernel, {named:.60}")


def _write_lists(entry: Path, place: Path) -> None:
    """Write Triton's lists of files into an entry that will be at ``place``."""
    for metadata in _metadata(sorted(entry.iterdir())):
        files = sorted(file.name for file in entry.iterdir() if file.stem == metadata.stem)
        paths: dict[str, Any] = {"child_paths": {name: str(place / name) for name in files}}
        (entry / f"{_LIST}{metadata.name}").write_text(json.dumps(paths), encoding="utf-8")


def _metadata(files: Collection[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".json" and not file.name.startswith(_LIST)]


def _is_kernels(name: str) -> bool:
    return _FILE.fullmatch(name) is not None and Path(name).suffix in KERNEL_SUFFIXES
