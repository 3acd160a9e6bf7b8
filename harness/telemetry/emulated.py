"""Telemetry of the emulated device: the counters of the launches within a window."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from harness.errors import HarnessError
from harness.isa.executed import Executed, LaunchAccess, executed
from harness.telemetry.recorder import Window


class Launch(Protocol):
    """The part of ``harness.emulator``'s LaunchRecord that is summed here."""

    @property
    def hash(self) -> str: ...
    @property
    def listing(self) -> str: ...
    @property
    def instructions(self) -> Mapping[str, int]: ...
    @property
    def lanes(self) -> Mapping[str, int]: ...
    @property
    def accesses(self) -> Sequence[LaunchAccess]: ...


class EmulatedRecorder:
    """Recorder of windows over a driver's launches. ``drain`` is the driver's ``drain_launches``.

    ``launches`` holds the launch records of the window that ended last, for callers that need more than their sums.
    """

    def __init__(self, drain: Callable[[], Sequence[Launch]]) -> None:
        self._drain = drain
        self._started: float | None = None
        self.launches: Sequence[Launch] = ()

    def begin(self) -> None:
        """Start a window; launches since the last window (set-up work) are dropped."""
        self._drain()
        self._started = time.monotonic()

    def end(self) -> Window:
        """End the window and return its launches, wavefront instructions and active lanes by class, bytes by memory,
        and seconds. ``polled`` is the part of the instructions in loops that wait for others, if there is any."""
        if self._started is None:
            raise HarnessError("telemetry: end() was called without begin(): call begin() first")
        seconds, self._started = time.monotonic() - self._started, None
        self.launches = self._drain()
        instructions: Counter[str] = Counter()
        polled: Counter[str] = Counter()
        lanes: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        for launch in self.launches:
            instructions.update(launch.instructions)
            polled.update(getattr(launch, "polled", {}))
            lanes.update(launch.lanes)
            for access in launch.accesses:
                moved[access.where] += access.bytes
        return {
            "source": "emulated",
            "launches": count(self.launches),
            "instructions": dict(sorted(instructions.items())),
            **({"polled": dict(sorted(polled.items()))} if polled else {}),
            "lanes": dict(sorted(lanes.items())),
            "bytes": dict(sorted(moved.items())),
            "seconds": seconds,
        }


def count(records: Iterable[Launch]) -> int:
    """Return the number of launches: a record may be a sum, with their number in ``launches``; else it is one."""
    return sum(getattr(record, "launches", 1) for record in records)


def launches_by_kernel(launches: Iterable[Launch]) -> dict[str, dict[str, Any]]:
    """Return kernel hash -> ``{"launches": n, "accesses": Executed.to_json(), "inexact": ...}``: one rank's part of a
    case's ``launches``.

    ``inexact`` has the executed opcodes whose result may differ from the hardware's, each with ``opcode``, ``grade``
    (``approximate`` or ``modelled``), ``bound``, ``source`` and ``executions``.
    """
    by_hash: dict[str, list[Launch]] = {}
    for launch in launches:
        by_hash.setdefault(launch.hash, []).append(launch)
    return {
        hash_: {
            "launches": count(records),
            "accesses": executed(records).to_json(),
            "inexact": _joined(vars(each) for record in records for each in getattr(record, "inexact", ())),
        }
        for hash_, records in by_hash.items()
    }


def merge_launches(ranks: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the sum of several ranks' ``launches_by_kernel``."""
    merged: dict[str, dict[str, Any]] = {}
    for rank in ranks:
        for hash_, entry in rank.items():
            seen = merged.get(hash_, {"launches": 0, "accesses": [], "inexact": []})
            total = Executed.from_json(seen["accesses"]) + Executed.from_json(entry["accesses"])
            merged[hash_] = {
                "launches": seen["launches"] + entry["launches"],
                "accesses": total.to_json(),
                "inexact": _joined([*seen["inexact"], *entry.get("inexact", ())]),
            }
    return merged


def _joined(opcodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each opcode, with the sum of the executions."""
    joined: dict[str, dict[str, Any]] = {}
    for each in opcodes:
        before = joined.setdefault(each["opcode"], {**each, "executions": 0})
        before["executions"] += each["executions"]
    return [joined[opcode] for opcode in sorted(joined)]
