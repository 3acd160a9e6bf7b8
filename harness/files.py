"""Atomic replacement of files: a reader sees either the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from harness.errors import UsageError


def write_whole(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) in one step: write a temporary file in the same folder, then rename it.

    If writing fails, the file at ``path`` is unchanged. Raises UsageError if ``path`` is a symbolic link (it is not
    followed) or not a regular file, and OSError for errors of the file system.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        kind = "a symbolic link" if path.is_symlink() else "not a regular file"
        raise UsageError(f"{path} is {kind}, and reports replace only regular files: remove it, or name another folder")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    """Return this process's umask. ``os.umask`` would have to change it for a moment, which other threads would see."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
