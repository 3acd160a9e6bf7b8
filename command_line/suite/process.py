"""The conformance suite as a child process: find it, start it, stop it, and kill every process that it left behind."""

from __future__ import annotations

import contextlib
import ctypes
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

import conformance
import fixtures
from fixtures.repeat import folder_of
from harness.errors import UsageError

TAIL_LINES = 30
MARK = "IRIS_HARNESS_RUN"
"""Environment variable that every process of a run inherits. Leftover processes are found by it and by nothing else."""

BEHIND = "--import-mode=append"
"""Option with which pytest puts the suite's folder behind that of another copy of the library: the bundled one is in
the suite's folder."""

_PR_SET_PDEATHSIG = 1
_ENDINGS = {
    2: "was interrupted, or could not collect all its tests",
    3: "had an internal error",
    4: "refused its options",
    5: "found no test to run",
}


def conformance_folder() -> Path:
    """Return the folder of the suite."""
    return Path(conformance.__path__[0]).resolve()


def pytest_command(targets: Sequence[str], *options: str) -> list[str]:
    """Return the command that runs ``targets`` with ``pytest_arguments``. Run it in ``child_environment()``."""
    return [sys.executable, "-m", "pytest", *pytest_arguments(targets, *options)]


def pytest_arguments(targets: Sequence[str], *options: str) -> list[str]:
    """Return pytest's arguments to run ``targets`` (node ids or files; "" is the whole suite) from any current folder.

    pytest reads the suite's own configuration file; it ignores those of enclosing folders and every conftest.py.
    """
    folder = conformance_folder()
    paths = [f"{folder.parent}{os.sep}{target}" if target else str(folder) for target in targets]
    configuration = ["-c", str(folder / "certify.ini"), f"--rootdir={folder.parent}", "--noconftest"]
    plugins = ["-p", "no:cacheprovider", "-p", fixtures.PLUGIN]
    return [*paths, *configuration, *plugins, *options]


_KEPT = {
    "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX", "PYTHONHASHSEED",
}  # fmt: skip
"""Variables that set where Python reads and writes files. The other PYTHON variables are dropped because they change
the run: PYTHONOPTIMIZE removes assertions, PYTHONWARNINGS turns warnings into errors."""


def child_environment(implementation: str | None = None) -> dict[str, str]:
    """Return this process's environment without the variables that would change the suite.

    Removed are pytest's, Hypothesis's and most of Python's variables. pytest loads no plugin only because it is
    installed. The folder of the harness's packages is importable (it may be a checkout that is not installed), and so
    is the package ``implementation``; the current folder is not (Python 3.11 or newer).
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


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of a child process that imports the library under test from ``folder``."""
    environment = child_environment()
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(folder), str(conformance_folder().parent), *paths]))
    return environment


def refusal(tail: Sequence[str]) -> str:
    """Return in one line why the suite refused its options: the last error in its output."""
    errors = [line.removeprefix("ERROR: ") for line in tail if line.startswith("ERROR: ")]
    return errors[-1] if errors else "the suite refused its options: see pytest.log in the output directory"


def ending_of(status: int) -> str | None:
    """Return a clause that describes an abnormal exit status (negative: a signal), or None if it is 0 or 1."""
    if status in (0, 1):
        return None
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"{_ENDINGS.get(status, 'ended unexpectedly')} (exit status {status})"


class Suite:
    """A running child process in its own process group, so that a terminal's Ctrl-C reaches it only through ``stop``.

    Its output goes to the file ``log``; ``tail`` keeps the last lines. The kernel kills it when this process dies; its
    ranks end with it. Use it as a context manager: leaving the block kills every process of the run. Create it in the
    main thread, which must outlive it. The process runs in ``folder``, by default the current folder, and keeps the
    open files ``descriptors``.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._id = uuid.uuid4().hex
        self._log: IO[bytes] = _fresh(log)
        self.log_problem: str | None = None
        """Why the log is incomplete; None if it is complete."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**(environment or child_environment()), MARK: self._id},
            cwd=folder,
            start_new_session=True,
            pass_fds=descriptors,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - it is one system call, which takes no lock
        )
        self._reader = threading.Thread(target=self._read, name="suite output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status if the process has ended (negative: the signal that ended it), else None."""
        return self._process.poll()

    def stop(self, patience: float = 20.0, hurry: threading.Event | None = None) -> None:
        """Interrupt the child, wait up to ``patience`` seconds for it to close its ranks, then kill what is left.

        Setting ``hurry`` (a second Ctrl-C) ends the wait.
        """
        self._signal_group(signal.SIGINT)
        deadline = time.monotonic() + patience
        while self._process.poll() is None and time.monotonic() < deadline and not (hurry and hurry.is_set()):
            time.sleep(0.05)
        self._kill()

    def join(self) -> None:
        """Wait until the log is complete. Call it after the process has ended."""
        self._reader.join(timeout=5)

    def ending(self) -> str | None:
        """Return a clause that describes an abnormal end, or None if the status is 0 or 1, as for every test run."""
        return ending_of(self._process.returncode)

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
                    except OSError as error:  # keep reading: the suite would block on a full pipe for ever
                        self.log_problem = error.strerror
                self.tail.append(line.decode("utf-8", "replace").rstrip())

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _kill(self) -> None:
        """Kill the process group and every process with this run's mark (ranks have their own groups), and wait."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        stragglers = marked_processes(self._id)
        for process in stragglers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(stragglers, timeout=10)


def marked_processes(identity: str) -> list[psutil.Process]:
    """Return the processes that inherited the mark of run ``identity``. Other users' processes cannot carry it."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == identity:
                processes.append(process)
    return processes


def _fresh(log: Path) -> IO[bytes]:
    """Create an empty, unbuffered log file. An existing file or link is removed, never followed.

    Raises UsageError if the file cannot be created.
    """
    try:
        log.unlink(missing_ok=True)
        return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb", buffering=0)
    except OSError as error:
        raise UsageError(f"cannot write {log} ({error.strerror}): name another --output directory") from error


def _end_with_parent() -> None:
    # SIGINT would let it finish a report that no process waits for. And a SIGINT can be lost between Python's last
    # look for signals and a system call that sleeps, so that the suite would run on.
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
