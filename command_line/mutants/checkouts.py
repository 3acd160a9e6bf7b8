"""Copies of the checkout for mutants of the harness, each used by one trial at a time, and again by later ones.

A copy has thousands of files, and writing it takes longer than most runs of tests on it. So a copy that is given back
is compared with what it was, by the time of change, size and inode of each file, and only what differs is written
again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from mutants import planting

NOT_COPIED = (".git", ".venv", "out", "build", ".nox", "*.egg-info", ".*_cache", ".hypothesis")

_State = dict[str, tuple[int, int, int]]
"""Time of change in ns, which no program can set, size in bytes and inode of each file, by its path in the copy."""


class Checkouts:
    """The copies, which ``close`` removes. Use it from one thread."""

    def __init__(self) -> None:
        self._states: dict[Path, _State] = {}
        self._free: list[Path] = []

    def take(self) -> Path:
        """Return the folder of a copy that no other trial uses."""
        if self._free:
            return self._free.pop()
        folder = Path(tempfile.mkdtemp(prefix="iris-harness-checkout-"))
        self._states[folder] = {}
        copy_of_project(folder)
        self._states[folder] = _state(folder)
        return folder

    def give_back(self, folder: Path) -> None:
        """Make the copy what it was, for the next trial. No process may use it any more."""
        try:
            _restore(folder, self._states[folder])
        except FileNotFoundError:  # the checkout no longer has the file
            shutil.rmtree(folder, ignore_errors=True)
            del self._states[folder]
        else:
            self._states[folder] = _state(folder)
            self._free.append(folder)

    def close(self) -> None:
        """Remove all copies, also those that were not given back. Idempotent."""
        for folder in self._states:
            shutil.rmtree(folder, ignore_errors=True)
        self._states, self._free = {}, []


def copy_of_project(folder: Path) -> None:
    """Copy the checkout to ``folder``, with times of modification, so that compiled modules stay valid."""
    shutil.copytree(planting.ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)


def _restore(folder: Path, before: _State) -> None:
    now = _state(folder)
    for name in now.keys() - before.keys():
        (folder / name).unlink()
    for name, was in before.items():
        if now.get(name) != was:
            target = folder / name
            target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(planting.ROOT / name, target)
    directories = {parent for name in before for parent in (folder / name).parents}
    for parent, names, _ in os.walk(folder, topdown=False):
        for name in names:
            if (path := Path(parent, name)) not in directories:
                path.rmdir()  # its files are gone


def _state(folder: Path) -> _State:
    states: _State = {}
    for parent, directories, files in os.walk(folder):
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in (*files, *links):
            path = os.path.join(parent, name)
            facts = os.lstat(path)
            states[os.path.relpath(path, folder)] = facts.st_ctime_ns, facts.st_size, facts.st_ino
    return states
