"""Recorded events as JSON that ui.perfetto.dev and its trace processor read: the Chrome "Trace Event Format".

A process is a rank, a thread a program of its kernels (by ``program_id(0)``); an event is a slice of it, or an instant
where it was not ended. What the trace processor demands beyond the format (its sources, importers/json and
slice_tracker):

* Slices of a thread nest or are apart; one that overlaps another in part is dropped. Where events of one program do (it
  closed them in the order in which it opened them, or two launches ran at once) there is a second thread for it.
* A thread's name goes by its number alone, so numbers differ between ranks.
* Times are multiplied by 1000 into 64 bits.
* ``displayTimeUnit`` scaled all times in older versions. It is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .events import TraceEvent

__all__ = ["COLUMNS", "UNITS", "Recording", "as_trace", "write_json"]

COLUMNS = (
    "event_id", "pid", "pid_m", "pid_n", "cur_rank", "target_rank", "xcc_id", "cu_id", "timestamp", "address",
    "duration_cycles", "op_index", "payload_size",
)  # fmt: skip
"""The columns of the event table, in the order of the context tensor."""

UNITS = ("cycles", "us")
SCHEMA = "1.1"

_NAMES = {int(value): name for name, value in vars(TraceEvent()).items() if not name.startswith("_")}
_ARGUMENTS = ("pid_m", "pid_n", "target_rank", "op_index", "payload_size", "xcc_id", "cu_id")

Event = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """One rank's events: ``columns`` of equal length by name, raw as kernels stored them; ``dropped`` found no room."""

    rank: int
    columns: dict[str, np.ndarray]
    dropped: int
    clock_hz: int


def as_trace(recordings: Sequence[Recording], unit: str) -> dict[str, Any]:
    """The trace of these ranks as plain data, with times in ``unit`` from the first event of all."""
    first = min((int(r.columns["timestamp"].min()) for r in recordings if len(r.columns["timestamp"])), default=0)
    stride = max(recording.rank for recording in recordings) + 1
    events = [event for recording in recordings for event in _events_of(recording, first, stride, unit)]
    others = {
        "schema": SCHEMA,
        "unit of ts and dur": "clock cycles" if unit == "cycles" else "microseconds",
        "clock_hz": recordings[0].clock_hz,
        "clock at ts 0": first,
        "events left out": {f"rank {recording.rank}": recording.dropped for recording in recordings},
    }
    return {"traceEvents": events, "otherData": others}


def write_json(path: Path, trace: dict[str, Any]) -> dict[str, Any]:
    """Write the trace, one event a line, and return it."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace["traceEvents"])
    path.write_text(f'{{"traceEvents":[\n{lines}\n],"otherData":{json.dumps(trace["otherData"])}}}\n', encoding="utf-8")
    return trace


def _events_of(recording: Recording, first: int, stride: int, unit: str) -> list[Event]:
    rank, columns = recording.rank, recording.columns
    names: list[Event] = [_meta("process_name", rank, rank, name=f"rank {rank}")]
    names.append(_meta("process_sort_index", rank, rank, sort_index=rank))
    start = columns["timestamp"]
    ended = columns["duration_cycles"] != 0
    end = np.where(ended, np.maximum(columns["duration_cycles"], start), start)
    # By program, and there what encloses before what it encloses.
    order = np.lexsort((-end, start, columns["pid"]))
    programs = columns["pid"][order]
    begins = np.flatnonzero(np.diff(programs, prepend=programs[:1] - 1))
    values = {name: columns[name].tolist() for name in ("event_id", "address", *_ARGUMENTS)}
    timed: list[tuple[int, int, Event]] = []
    tracks = 0
    for program, own in zip(programs[begins].tolist(), np.split(order, begins)[1:], strict=True):
        starts, ends = start[own].tolist(), end[own].tolist()
        lanes = nested_lanes(zip(starts, ends, strict=True))
        for lane in range(max(lanes) + 1):
            thread = stride + (tracks + lane) * stride + rank
            label = f"program {program}" if lane == 0 else f"program {program}, overlapping ({lane})"
            names.append(_meta("thread_name", rank, thread, name=label))
            names.append(_meta("thread_sort_index", rank, thread, sort_index=tracks + lane))
        for row, since, until, lane in zip(own.tolist(), starts, ends, lanes, strict=True):
            event = {
                "name": _name(values["event_id"][row]),
                "cat": "iris",
                "pid": rank,
                "tid": stride + (tracks + lane) * stride + rank,
                "ts": _time(since - first, recording.clock_hz, unit),
                **_extent(ended[row], until - since, recording.clock_hz, unit),
                "args": {name: values[name][row] for name in _ARGUMENTS} | {"address": f"{values['address'][row]:#x}"},
            }
            timed.append((since, -until, event))
        tracks += max(lanes) + 1
    timed.sort(key=lambda item: item[:2])
    return [*names, *(event for _, _, event in timed)]


def nested_lanes(spans: Iterable[tuple[int, int]]) -> list[int]:
    """For each (start, end), by start and then by falling end, the first lane in which spans nest or are apart.

    Example: (0, 9), (2, 5), (4, 12) -> 0, 0, 1: the third starts inside the first and ends after it.
    """
    chosen: list[int] = []
    lanes: list[list[int]] = []
    for start, end in spans:
        for ends in lanes:
            while ends and ends[-1] <= start:
                ends.pop()
        lane = next((lane for lane, ends in enumerate(lanes) if not ends or end <= ends[-1]), len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(end)
        chosen.append(lane)
    return chosen


def _name(number: int) -> str:
    return str(_NAMES.get(number, f"event {number}"))


def _extent(ended: bool, ticks: int, clock_hz: int, unit: str) -> Event:
    """An instant of its thread, or a slice."""
    return {"ph": "X", "dur": _time(ticks, clock_hz, unit)} if ended else {"ph": "i", "s": "t"}


def _time(ticks: int, clock_hz: int, unit: str) -> float:
    return ticks if unit == "cycles" else ticks * 1_000_000 / clock_hz


def _meta(name_of_event: str, rank: int, thread: int, **arguments: object) -> Event:
    return {"ph": "M", "pid": rank, "tid": thread, "name": name_of_event, "args": arguments}
