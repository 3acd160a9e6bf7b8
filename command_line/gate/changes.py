"""Changes since the base, as files and lines, and a copy of the base's library; both from git."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from command_line.gate.units import Sources, changed, digests_of
from fixtures.adapters import package_of
from harness.errors import UsageError

GIT_SECONDS, IMPORT_SECONDS = 120.0, 300.0
_PREFIX = "iris-harness-base-"
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Base:
    """The base of a gate: ``revision`` as it was named, its ``commit``, the ``root`` of the repository, and the folder
    of the library relative to that.

    ``files`` are the paths, relative to the root, that differ between the base and the working tree, files that git
    does not know included; ``lines`` maps a file to the ranges of its new or changed lines.
    """

    revision: str
    commit: str
    root: Path
    library: Path
    files: tuple[str, ...]
    lines: Mapping[str, tuple[tuple[int, int], ...]]

    @property
    def short(self) -> str:
        """The name of the commit for people."""
        return self.commit[:12]


def base_of(revision: str, library: Path) -> Base:
    """Return the base ``revision`` of the repository that has the folder of the library. UsageError if there is no such
    repository or revision, or the library was not in it."""
    library = library.resolve()
    root = Path(
        _git(library, "rev-parse", "--show-toplevel", why=f"--base: {library} is not in a git repository").strip()
    )
    inside = library.relative_to(root.resolve())
    if not revision or revision.startswith("-"):
        raise UsageError(f"--base: expected a revision such as origin/main or HEAD~1, got {revision!r:.60}")
    wrong = f"--base: {root} has no revision {revision!r:.60}; fetch it (git fetch --unshallow in a shallow clone)"
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", why=wrong)
    commit = commit.strip()
    wrong = f"--base {revision}: {inside.as_posix()} is not in that revision"
    _git(root, "cat-file", "-e", f"{commit}:{inside.as_posix()}", why=wrong)
    named = _git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    unknown = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    files = sorted({file for file in (named + unknown).split("\0") if file})
    lines = _lines(_git(root, "diff", "--unified=0", "--no-renames", "--no-color", "--no-ext-diff", commit))
    return Base(revision, commit, root, inside, tuple(files), lines)


def units_since(base: Base, units: Mapping[str, str]) -> dict[str, str]:
    """Return the units of the library that differ from the base, each with "changed", "removed" or "new".

    ``units``: the digests of the head's units. A file of the base that is not Python source counts as without units.
    """
    since: dict[str, str] = {}
    parent = base.library.parent
    for path in base.files:
        if PurePosixPath(base.library) not in PurePosixPath(path).parents or not path.endswith(".py"):
            continue
        name = PurePosixPath(path).relative_to(parent).as_posix()
        try:
            text = _git_bytes(base.root, "cat-file", "blob", f"{base.commit}:{path}").decode("utf-8", "replace")
        except UsageError:  # the base does not have the file
            text = ""
        try:
            before = digests_of(name, text)
        except SyntaxError:
            before = {}
        after = {unit: digest for unit, digest in units.items() if unit.startswith(f"{name}:")}
        since |= changed(before, after)
    return since


def folder_of(implementation: str) -> Path:
    """Return the folder of the package under test. UsageError if it has none."""
    spec = importlib.util.find_spec(package_of(implementation))
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"--implementation: {implementation} is not a package with a folder")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


@contextlib.contextmanager
def checked_out(base: Base) -> Iterator[Path]:
    """Yield a temporary folder that has the base's library, under the name of its package; removed at the end.

    A folder that a killed run left behind is removed too. UsageError if the base's library is not valid Python or
    cannot be imported: the base does not build.
    """
    _remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        packed = _git_bytes(base.root, "archive", "--format=tar", base.commit, "--", base.library.as_posix())
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        library = folder / base.library
        try:
            Sources(library)
        except UsageError as error:
            raise UsageError(f"--base {base.revision} does not build: {_at_home(str(error), folder)}") from None
        _import(library, base)
        yield library.parent
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _import(library: Path, base: Base) -> None:
    """Import the base's package in a child process. UsageError if that fails."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {library.name}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(library.parent)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=IMPORT_SECONDS, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"--base {base.revision} does not build: its import did not end") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.strip().splitlines()]
        places = re.findall(r'File "([^"]+)", line (\d+)', done.stderr)
        own = [f"{file}:{line}" for file, line in places if str(library.parent) in file]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        where = f"{own[-1]}: " if own else ""
        raise UsageError(f"--base {base.revision} does not build: {_at_home(where + reason, library.parent)}")


def _at_home(text: str, folder: Path) -> str:
    """Return a text with paths relative to the temporary folder."""
    return text.replace(f"{folder}/", "")


def _remove_stale() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _lines(diff: str) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the ranges of new lines by file, from the output of git diff without context."""
    lines: dict[str, list[tuple[int, int]]] = {}
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line[6:] if line.startswith("+++ b/") else ""
        elif file and (match := _HUNK.match(line)):
            first, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(file, []).append((max(first, 1), max(first + count - 1, first, 1)))
    return {file: tuple(ranges) for file, ranges in lines.items()}


def _git(folder: Path, *arguments: str, why: str = "") -> str:
    return _git_bytes(folder, *arguments, why=why).decode("utf-8", "surrogateescape")


def _git_bytes(folder: Path, *arguments: str, why: str = "") -> bytes:
    """Return the output of git in a folder. UsageError with ``why``, or git's own words, if it fails."""
    command: Sequence[str] = ["git", "-c", "core.quotePath=false", "-c", "diff.noprefix=false", *arguments]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=GIT_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("--base needs git, and no program of that name is on the PATH") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--base: git {arguments[0]} did not end within {GIT_SECONDS:g} s") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(why or f"--base: git {arguments[0]} failed: {words[-1] if words else done.returncode}")
    return done.stdout
