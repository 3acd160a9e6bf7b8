"""The conformance suite as a child process: found, started, stopped, and gone when this module says so."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from harness.errors import UsageError

TAIL_LINES = 30
MARK = "IRIS_HARNESS_RUN"
"""Environment variable that every process of one run inherits: by it, and by nothing else, stragglers are known."""

_PR_SET_PDEATHSIG = 1
_ENDINGS = {
    2: "was interrupted",
    3: "had an internal error",
    4: "refused its options",
    5: "found no test to run",
}


def conformance_folder() -> Path:
    """Where the suite lies. Raises UsageError when it is not installed."""
    spec = importlib.util.find_spec("conformance")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise UsageError("the package 'conformance' is not there: install iris-harness, or run from its checkout")
    return Path(places[0]).resolve()


def pytest_command(target: str, *options: str) -> list[str]:
    """The command that runs ``target`` (a node id, or "" for the whole suite) wherever the caller stands."""
    folder = conformance_folder()
    where = f"{folder.parent}{os.sep}{target}" if target else str(folder)
    plugins = ["-p", "no:cacheprovider", "-p", "fixtures.plugin"]
    return [sys.executable, "-m", "pytest", where, f"--rootdir={folder.parent}", *plugins, *options]


def child_environment() -> dict[str, str]:
    """Ours, with the packages' folder importable (they may be a checkout that is not installed)."""
    environment = dict(os.environ)
    root = str(conformance_folder().parent)
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    return environment


class Suite:
    """A running child in a process group of its own, so that a terminal's Ctrl-C reaches it only through ``stop``.

    Its output goes to ``log``, and its last lines are kept in ``tail``. It is told to end when this process dies. Use
    as a context manager: on leaving, every process of the run is gone. Create it in the main thread, before other
    threads are started.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._id = uuid.uuid4().hex
        self._log: IO[bytes] = log.open("wb")
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**(environment or child_environment()), MARK: self._id},
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - started before any thread of ours; one system call
        )
        self._reader = threading.Thread(target=self._read, name="suite output", daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """The exit status once it has ended (negative: the signal that ended it), else None."""
        return self._process.poll()

    def stop(self, patience: float = 20.0, hurry: threading.Event | None = None) -> None:
        """Interrupt the child, give it ``patience`` seconds to close its ranks, then kill what is left.

        Setting ``hurry`` (a second Ctrl-C) ends the patience.
        """
        self._signal_group(signal.SIGINT)
        deadline = time.monotonic() + patience
        while self._process.poll() is None and time.monotonic() < deadline and not (hurry and hurry.is_set()):
            time.sleep(0.05)
        self._kill()

    def ending(self) -> str | None:
        """None if it ended as a test run does (status 0 or 1), else a clause that says how it ended."""
        status = self._process.returncode
        if status in (0, 1):
            return None
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-status).name}"
            return f"was killed by signal {-status}"
        return f"{_ENDINGS.get(status, 'ended unexpectedly')} (exit status {status})"

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._reader.join(timeout=5)
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._log.write(line)
                self._log.flush()
                self.tail.append(line.decode("utf-8", "replace").rstrip())

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _kill(self) -> None:
        """Kill the group and whatever else bears this run's mark (ranks have groups of their own), and wait."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        stragglers = marked_processes(self._id)
        for process in stragglers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(stragglers, timeout=10)


def marked_processes(identity: str) -> list[psutil.Process]:
    """The processes that inherited the mark of run ``identity``; those of other users cannot bear it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == identity:
                found.append(process)
    return found


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
