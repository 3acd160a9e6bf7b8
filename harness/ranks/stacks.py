"""Stacks and states of all ranks, for the report of a hang.

Three sources, the most robust first: faulthandler's C handler for SIGUSR1 (works while the GIL is held); the state of
the device as the rank's environment describes it, written by the rank's watch thread (needs the GIL); and py-spy from
outside (needs ptrace; the most detailed).
"""

from __future__ import annotations

import faulthandler
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.text import clipped, repr_of

END_OF_STATE = "\n--end of state--\n"
_DESCRIBE_LIMIT = 2.0
_PY_SPY_LIMIT = 10.0
_LOOP = re.compile(r"worker\.py\"?, line \d+ in _execute_calls|_execute_calls \(.*worker\.py")
_WATCH_THREAD = re.compile(r"stacks\.py\"?, line \d+ in watch$|watch \(.*ranks/stacks\.py", re.MULTILINE)
_PY_SPY_HEADER = ("Process ", "Python v")


def register(dump: int) -> None:
    """Register, on a rank, a handler for SIGUSR1 that dumps all threads to ``dump`` and wakes the watch thread."""
    # The Python-level handler does nothing, but its presence makes CPython write to the wake-up descriptor.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=True, chain=True)


_environment: Any = None


def describe_by(environment: Any) -> None:
    """Set the object that describes this rank's state, by a method ``describe() -> str`` if it has one.

    The method is called on a separate thread while the main thread hangs, so it must not wait for anything that the
    main thread waits for. It has 2 s.
    """
    global _environment
    _environment = environment


def watch(connection: int, controller: int, wakeup: int, state: int) -> None:
    """Run a rank's watch thread: exit when the controller ends, write to ``state`` on SIGUSR1; never returns.

    ``connection`` and ``controller`` (a pidfd) show the end of the controller; both must stay open.
    """
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.register(controller, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != wakeup:
                os._exit(1)
            if signal.SIGUSR1 in os.read(wakeup, 64):
                os.write(state, (clipped(_describe()) + END_OF_STATE).encode(errors="replace"))


def collect(ranks: Mapping[int, tuple[int, int, int, int]], patience: float = _DESCRIBE_LIMIT + 0.5) -> dict[int, str]:
    """Return the stacks and state of each rank as text.

    ``ranks``: rank -> (pid, pidfd, dump descriptor, state descriptor). ``patience``: seconds to wait for the ranks'
    own answers; the text of a rank that gives none states that.
    """
    dump_starts = {rank: os.fstat(member[2]).st_size for rank, member in ranks.items()}
    state_starts = {rank: os.fstat(member[3]).st_size for rank, member in ranks.items()}
    for _, pidfd, _, _ in ranks.values():
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            continue  # it has ended; its text will state that it has no dump
    states = _await_states(ranks, state_starts, patience)
    spied = _py_spy({rank: member[0] for rank, member in ranks.items()})
    texts = {}
    for rank, (pid, _, dump, _) in ranks.items():
        stack = read_from(dump, dump_starts[rank]) or "(none: the process did not take the signal)"
        texts[rank] = "\n".join(
            [
                f"[faulthandler, process {pid}]",
                clipped(trim(stack).rstrip()),
                "[state]",
                clipped(states[rank].rstrip()),
                "[py-spy]",
                clipped(trim(spied[rank], _PY_SPY_HEADER).strip()),
            ]
        )
    return texts


def trim(text: str, noise: tuple[str, ...] = ("Extension modules:",)) -> str:
    """Return a dump of faulthandler or py-spy without the frames below a rank's call loop, the watch thread, and lines
    that start with ``noise``."""
    lines: list[str] = []
    below = False
    for line in text.splitlines():
        frame = line.startswith((" ", "\t"))
        if below and frame:
            continue
        below = bool(_LOOP.search(line))
        if not below and not line.startswith(noise):
            lines.append(line)
    blocks = re.split(r"\n(?=Thread |Current thread )", "\n".join(lines))
    return "\n".join(block for block in blocks if not _WATCH_THREAD.search(block))


def read_from(descriptor: int, start: int, limit: int = 1 << 16) -> str:
    """Return the text of a memory file from ``start`` on, at most its last ``limit`` bytes; moves no file position.

    A rank writes the file, so its content is untrusted: it is only bounded and shown.
    """
    size = os.fstat(descriptor).st_size
    start = max(start, size - limit) if size >= start else 0
    return os.pread(descriptor, size - start, start).decode(errors="replace")


def within(seconds: float, functions: Mapping[str, Callable[[], str]]) -> dict[str, str]:
    """Call all ``functions`` at once, each on its own thread, and return their results by name.

    A function that raised, or did not return within ``seconds``, has a text in brackets instead; the thread of one
    that did not return goes on.
    """
    answers: dict[str, str] = {}

    def call(name: str, function: Callable[[], str]) -> None:
        try:
            answers[name] = function()
        except BaseException as error:  # noqa: BLE001 (a report of a hang must not raise)
            answers[name] = f"({name} failed: {repr_of(error)})"

    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=call, args=each, name=f"describe-{each[0]}", daemon=True) for each in functions.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {name: answers.get(name, f"({name} gave no answer within {seconds:g} s)") for name in functions}


def _describe() -> str:
    if _environment is None:
        return "(this rank is not set up yet)"
    describe = getattr(_environment, "describe", None)
    if not callable(describe):
        return "(this rank's environment describes no state)"
    name = "the environment's describe()"
    return within(_DESCRIBE_LIMIT, {name: lambda: str(describe())})[name]


def _await_states(
    ranks: Mapping[int, tuple[int, int, int, int]], starts: Mapping[int, int], patience: float
) -> dict[int, str]:
    end = time.monotonic() + patience
    states = dict.fromkeys(ranks, "(no answer: the main thread holds the interpreter, or the process is stopped)")
    missing = set(ranks)
    while missing and time.monotonic() < end:
        for rank in sorted(missing):
            text = read_from(ranks[rank][3], starts[rank])
            if text.endswith(END_OF_STATE):
                states[rank] = text.removesuffix(END_OF_STATE)
                missing.discard(rank)
        if missing:
            time.sleep(0.005)
    return states


def _py_spy(pids: Mapping[int, int]) -> dict[int, str]:
    """Return py-spy's dump of each process; all dumps are made at once."""
    places = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    command = shutil.which("py-spy", path=os.pathsep.join(places))
    if command is None:
        return dict.fromkeys(pids, "(py-spy is not installed)")
    texts = _dumps(command, pids, [])
    refused = {rank: pids[rank] for rank, (fine, _) in texts.items() if not fine}
    if refused:
        # Reading memory without stopping the process needs no ptrace attach, but may catch a moving stack.
        again = _dumps(command, refused, ["--nonblocking"])
        for rank, (fine, text) in again.items():
            reason = texts[rank][1].strip().splitlines()
            note = f"(py-spy could not stop the process: {reason[0] if reason else 'no reason given'}"
            texts[rank] = (fine, f"{note}; without stopping it:)\n{text}")
    return {rank: text for rank, (_, text) in texts.items()}


def _dumps(command: str, pids: Mapping[int, int], flags: list[str]) -> dict[int, tuple[bool, str]]:
    running = {
        rank: subprocess.Popen(
            [command, "dump", *flags, "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank, pid in pids.items()
    }
    end = time.monotonic() + _PY_SPY_LIMIT
    texts = {}
    for rank, process in running.items():
        try:
            text, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
            texts[rank] = (process.returncode == 0, text)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            texts[rank] = (False, f"no answer from py-spy within {_PY_SPY_LIMIT:g} s")
    return texts
