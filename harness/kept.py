"""Results kept on disk between processes and runs: files that only this user writes, whole or absent, with a checksum.

A result is read as data that may be damaged: ``read`` returns None for a file whose checksum is wrong, and the caller
computes the result again. It runs nothing of the content. The name of a result has to be a hash of everything that it
depends on, the source of the code that computes it included (``sources_hash``), so that a result never expires.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.locks import private_folder

_DIGEST = 64
"""Characters of the checksum at the beginning of a file."""


def file_in(cache: Path, kind: str, name: str) -> Path:
    """Return the path of the result ``name`` in the folder of this user's results of a ``kind`` in a cache folder,
    which several users may share."""
    return cache / f"iris-harness-kept-{os.getuid()}" / kind / name


def read(file: Path) -> bytes | None:
    """Return the content that ``write`` stored; None if the file is missing or damaged, or if another user may have
    written it."""
    try:
        if not all(_is_private(folder) for folder in (file.parent, file.parent.parent)):
            return None
        content = file.read_bytes()
    except OSError:
        return None
    digest, content = content[:_DIGEST], content[_DIGEST:]
    return content if hashlib.sha256(content).hexdigest().encode() == digest else None


def write(file: Path, content: bytes) -> None:
    """Store ``content``. Other processes see the whole file or none; a failure to write it is ignored."""
    try:
        private_folder(private_folder(file.parent.parent) / file.parent.name)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(hashlib.sha256(content).hexdigest().encode() + content)
        os.replace(temporary, file)
    except (OSError, HarnessError, UsageError):
        return


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


@functools.cache
def sources_hash(folder: Path) -> str:
    """Return a hash of the Python files below ``folder``: of the code that computes a result."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
