"""The folders of runs: which are the newest, and which process writes to a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.files import write_whole

EVIDENCE = "evidence.jsonl"
LOCK = ".lock"
_KEPT = 50


def note(evidence: Path) -> None:
    """Make the run that writes ``evidence`` the newest one: for ``recent``, and as ``latest`` in a folder ``out``.

    A convenience: a failure to write here (a read-only home folder) is ignored.
    """
    evidence = evidence.absolute()
    with contextlib.suppress(OSError, UsageError):
        register = _register()
        register.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        others = [line for line in _lines(register) if line != str(evidence)]
        write_whole(register, "".join(f"{line}\n" for line in [*others[-_KEPT + 1 :], evidence]))
    folder = evidence.parent
    if folder.parent.name == "out" and folder.name != "latest":
        new = folder.parent / f".latest-{os.getpid()}"
        with contextlib.suppress(OSError):
            new.symlink_to(folder.name, target_is_directory=True)
            try:
                new.replace(folder.parent / "latest")
            except OSError:  # a folder of that name exists
                new.unlink()


def recent() -> list[Path]:
    """Return the evidence files that can still be read: those that ``note`` recorded, and those in ``out/*/`` here.

    The file that was written last comes first.
    """
    paths = {Path(line) for line in _lines(_register())} | {
        path.absolute() for path in Path("out").glob(f"*/{EVIDENCE}")
    }
    times: dict[Path, float] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            times[path.resolve(strict=True)] = path.stat().st_mtime
    return sorted(times, key=lambda path: times[path], reverse=True)


def is_own(evidence: Path) -> bool:
    """Return whether ``note`` recorded this file, so the user's own run wrote it; other files in ``out/`` may come from
    elsewhere."""
    return str(evidence.resolve()) in {os.path.realpath(line) for line in _lines(_register())}


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other runs from writing to ``folder`` during the body; UsageError with the pid of a run that does already.

    The claim is a file lock in the folder. The kernel drops it when this process ends, in whatever way.
    """
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise UsageError(f"cannot write {path} ({error.strerror}): name another --output directory") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise UsageError(
                f"{folder} is in use by another run, process {owner if owner.isdecimal() else 'unknown'}: wait until it"
                " has ended, or name another --output directory"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot lock {path} ({error.strerror}): name another --output directory") from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _register() -> Path:
    """Return the path of the register, ``$XDG_STATE_HOME/iris-harness/runs``: one evidence file per line, newest
    last."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return folder / "iris-harness" / "runs"


def _lines(register: Path) -> list[str]:
    try:
        with register.open("rb") as file:
            lines = file.read(1 << 20).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    return [line for line in lines if os.path.isabs(line)]
