"""What every rank is doing, for the report of a hang.

Three witnesses, from the surest to the most talkative: faulthandler's C handler for SIGUSR1 (works while the GIL is
held), what the rank's environment says of its device, written by the rank's watch thread (needs the GIL), and py-spy
from outside (needs ptrace).
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

_END_OF_STATE = "\n--end of state--\n"
_DESCRIBE_LIMIT = 2.0
_PY_SPY_LIMIT = 10.0
_LOOP = re.compile(r"worker\.py\"?, line \d+ in _execute_calls|_execute_calls \(.*worker\.py")
_WATCH_THREAD = re.compile(r"stacks\.py\"?, line \d+ in watch$|watch \(.*ranks/stacks\.py", re.MULTILINE)
_PY_SPY_HEADER = ("Process ", "Python v")


def register(dump: int) -> None:
    """On a rank: dump all threads into the descriptor ``dump`` at SIGUSR1, then wake the watch thread."""
    # The Python-level handler does nothing; that there is one makes CPython write to the wake-up descriptor.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=True, chain=True)


_environment: Any = None


def describe_by(environment: Any) -> None:
    """On a rank: what describes its state from now on, by a method ``describe() -> str`` if it has one.

    It is called on a thread of its own while the main thread hangs, so it must not wait for what the main thread waits
    for; it has 2 s.
    """
    global _environment
    _environment = environment


def watch(connection: int, controller: int, wakeup: int, state: int) -> None:
    """Body of a rank's watch thread: exit with the controller, write into ``state`` when woken; never returns.

    ``connection`` and ``controller`` (a pidfd) tell the end of the controller; both must stay open.
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
                os.write(state, (clipped(_describe()) + _END_OF_STATE).encode(errors="replace"))


def collect(ranks: Mapping[int, tuple[int, int, int, int]], patience: float = _DESCRIBE_LIMIT + 0.5) -> dict[int, str]:
    """What each rank is doing. ``ranks``: rank -> (pid, pidfd, dump descriptor, state descriptor).

    ``patience`` bounds the wait for the ranks' own answers; a rank without any is itself a finding and is said.
    """
    dump_starts = {rank: os.fstat(member[2]).st_size for rank, member in ranks.items()}
    state_starts = {rank: os.fstat(member[3]).st_size for rank, member in ranks.items()}
    for _, pidfd, _, _ in ranks.values():
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            continue  # it ended meanwhile; its dump will say that there is none
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
    """A dump of faulthandler or py-spy without frames below a rank's loop, the watch thread, and ``noise`` lines."""
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


def read_from(descriptor: int, start: int, most: int = 1 << 16) -> str:
    """The text of a memory file from ``start`` on, at most its last ``most`` bytes; moves no file position.

    The rank writes the file and may write what it likes: the text is data, and short.
    """
    size = os.fstat(descriptor).st_size
    start = max(start, size - most) if size >= start else 0
    return os.pread(descriptor, size - start, start).decode(errors="replace")


def within(seconds: float, asked: Mapping[str, Callable[[], str]]) -> dict[str, str]:
    """What each of ``asked`` returns, all asked at once on threads of their own; a text in brackets for one that
    raised or had not answered after ``seconds``: its thread is left behind."""
    answers: dict[str, str] = {}

    def ask(name: str, function: Callable[[], str]) -> None:
        try:
            answers[name] = function()
        except BaseException as error:  # noqa: BLE001 (a report of a hang must not raise)
            answers[name] = f"({name} failed: {repr_of(error)})"

    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=ask, args=each, name=f"describe-{each[0]}", daemon=True) for each in asked.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {name: answers.get(name, f"({name} gave no answer within {seconds:g} s)") for name in asked}


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
            if text.endswith(_END_OF_STATE):
                states[rank] = text.removesuffix(_END_OF_STATE)
                missing.discard(rank)
        if missing:
            time.sleep(0.005)
    return states


def _py_spy(pids: Mapping[int, int]) -> dict[int, str]:
    """What py-spy says about each process, all asked at once."""
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
