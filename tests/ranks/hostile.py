"""Attacks of a library under test on the controller, from a rank's process; each function is one attempt."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from harness.cases import case_type
from harness.ranks.output import OUTPUT_LIMIT

HUGE = 200_000_000
FLOOD = 400_000_000


@case_type
@dataclass(frozen=True)
class PlainCase:
    """A case with one field that must be given and one that need not."""

    op: str
    n: int = 1


class Stub:
    """Stand-in for the environment that ``fixtures.worker.run_case`` needs, without device and library."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.fault: BaseException | None = None
        self.remarks: list[str] = []

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))

    def begin(self) -> None:
        self.fault = None

    def harvest(self) -> dict[str, Any]:
        return {"telemetry": {}, "launches": {}, "kernels": {}, "outcomes": {}, "sharing": 0}


def setup(info: dict[str, Any], options: dict[str, Any]) -> Stub:
    return Stub(info["rank"])


class Runs:
    """Unpickling this makes a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


class Mute(Exception):  # noqa: N818 (planted)
    def __str__(self) -> str:
        raise ArithmeticError("no text")


def sends(env: Stub, payload: dict[str, Any]) -> str:
    """Rank 1 writes ``payload["bytes"]`` to the controller's socket."""
    if env.rank == 1:
        _socket_of_rank().sendall(payload["bytes"])
    return "fine"


def sends_a_pickle(env: Stub, payload: dict[str, Any]) -> str:
    body = pickle.dumps(("result", Runs(payload["folder"])))
    return sends(env, {**payload, "bytes": struct.pack("<Q", len(body)) + body})


def floods_the_socket(env: Stub, payload: dict[str, Any]) -> str:
    """Rank 1 announces a terabyte and sends as much of it as the controller takes, up to FLOOD bytes."""
    if env.rank == 1:
        connection = _socket_of_rank()
        connection.sendall(struct.pack("<Q", 1 << 40))
        for _ in range(FLOOD // (1 << 20)):
            connection.sendall(bytes(1 << 20))
    return "fine"


def floods_stdout(env: Stub, payload: Any) -> list[int]:
    """Rank 1 writes five times what its output may hold, and each time waits, for 5 s at most, until that was cut.

    Returns how many bytes it wrote and the largest size of its output that it saw.
    """
    written = largest = 0
    print(f"first words of rank {env.rank}", flush=True)
    line = b"x" * 1023 + b"\n"
    for _ in range(5 if env.rank == 1 else 0):
        while (size := os.fstat(1).st_size) <= OUTPUT_LIMIT:
            written += os.write(1, line * 1024)
        end = time.monotonic() + 5
        while os.fstat(1).st_size > OUTPUT_LIMIT:
            if time.monotonic() > end:
                raise TimeoutError(f"an output of {size:,} bytes was not cut within 5 s")
            time.sleep(0.001)
        largest = max(largest, size)
    print(f"last words of rank {env.rank}", flush=True)
    if payload == "raise":
        raise ValueError("planted after the flood")
    return [written, largest]


def raises(env: Stub, payload: str) -> None:
    raise ValueError("x" * HUGE) if payload == "huge" else Mute()


def returns(env: Stub, payload: Any) -> bytes:
    return bytes(HUGE)


def case_with_huge_text(env: Stub, case: Any) -> None:
    """Rank 0 keeps an error, as ``env.acting()`` does."""
    if env.rank == 0:
        env.fault = ValueError("y" * HUGE)


def case_that_raises_huge_text(env: Stub, case: Any) -> None:
    raise ValueError("z" * HUGE)


def case_with_huge_difference(env: Stub, case: Any) -> dict[str, Any]:
    return {"what": "text", "rank": env.rank, "index": None, "got": "g" * HUGE, "wanted": ""}


def case_that_is_returned(env: Stub, case: Any) -> dict[str, Any]:
    return {"what": type(case).__name__, "rank": 0, "index": None, "got": repr(case), "wanted": ""}


def _socket_of_rank() -> socket.socket:
    """Return this rank's connection to its controller, as any code in the process can find it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        connection = frame.f_locals.get("connection")
        if isinstance(connection, socket.socket):
            return connection
        frame = frame.f_back
    raise LookupError("no frame of this thread has the connection")
