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

from harness.casefile import folder_of
from harness.errors import UsageError

TAIL_LINES = 30
MARK = "IRIS_HARNESS_RUN"
"""Environment variable that every process of one run inherits: by it, and by nothing else, stragglers are known."""

_PR_SET_PDEATHSIG = 1
_ENDINGS = {
    2: "was interrupted, or could not collect all its tests",
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


def pytest_command(targets: Sequence[str], *options: str) -> list[str]:
    """The command that runs ``targets`` (node ids or files; "" is the whole suite) wherever the caller stands.

    It reads the configuration that lies in the suite, and neither that of an enclosing folder nor any conftest.py. Run
    it in ``child_environment()``.
    """
    folder = conformance_folder()
    where = [f"{folder.parent}{os.sep}{target}" if target else str(folder) for target in targets]
    own = ["-c", str(folder / "certify.ini"), f"--rootdir={folder.parent}", "--noconftest"]
    plugins = ["-p", "no:cacheprovider", "-p", "fixtures.plugin"]
    return [sys.executable, "-m", "pytest", *where, *own, *plugins, *options]


_KEPT = {
    "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX", "PYTHONHASHSEED",
}  # fmt: skip
"""Variables that say where Python finds and keeps files. Others of Python's change what runs: PYTHONOPTIMIZE drops
assertions, PYTHONWARNINGS changes what is an error."""


def child_environment(implementation: str | None = None) -> dict[str, str]:
    """Ours, without what would change the suite: pytest's, Hypothesis's and most of Python's variables.

    pytest loads no plugin that happens to be installed. The packages' folder is importable (they may be a checkout
    that is not installed), and so is ``implementation``, found here; the current folder is not (Python 3.11 or newer).
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(("PYTEST_", "HYPOTHESIS_", "PYTHON"))
    }
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    roots = [str(conformance_folder().parent), folder_of(implementation) if implementation else None]
    added = [root for root in dict.fromkeys(roots) if root and root not in installed]
    if paths := [*added, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return {
        **environment,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONIOENCODING": "utf-8:backslashreplace",
    }


def refusal(tail: Sequence[str]) -> str:
    """The last error of a suite that refused its options, in one line."""
    errors = [line.removeprefix("ERROR: ") for line in tail if line.startswith("ERROR: ")]
    return errors[-1] if errors else "the suite refused its options: see pytest.log in the output directory"


class Suite:
    """A running child in a process group of its own, so that a terminal's Ctrl-C reaches it only through ``stop``.

    Its output goes to ``log``, and its last lines are kept in ``tail``. It is told to end when this process dies. Use
    as a context manager: on leaving, every process of the run is gone. Create it in the main thread, before other
    threads are started.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._id = uuid.uuid4().hex
        self._log: IO[bytes] = _fresh(log)
        self.log_problem: str | None = None
        """Why the log is not whole, if it is not."""
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

    def join(self) -> None:
        """Wait until the log is whole, after the process has ended."""
        self._reader.join(timeout=5)

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
        with contextlib.suppress(OSError):
            self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                if self.log_problem is None:
                    try:
                        self._log.write(line)
                    except OSError as error:  # go on reading: the suite would wait for ever with a full pipe
                        self.log_problem = error.strerror
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


def _fresh(log: Path) -> IO[bytes]:
    """The log, empty and unbuffered. What lay there is removed, not followed. UsageError if it cannot be created."""
    try:
        log.unlink(missing_ok=True)
        return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb", buffering=0)
    except OSError as error:
        raise UsageError(f"cannot write {log} ({error.strerror}): name another --output directory") from error


def _end_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
