"""Reader of JSON traces by the rules of Perfetto's trace processor, which reports the events that it would drop.

    slices, problems = load(path.read_text())

The trace processor imports what it can and counts the rest in its table ``stats``, so a file that opens may lack
events. Here each event that it would drop, misplace or read differently in some version is a problem, in words. With
``trace_processor_shell``, ``SLICES_QUERY`` returns the same slices. Source: Perfetto, src/trace_processor,
importers/json (the tokenizer and the parser) and importers/common/slice_tracker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["SLICES_QUERY", "Slice", "load"]

SLICES_QUERY = """
select process.name as process, thread.name as thread, slice.name, slice.ts, slice.dur, slice.depth
from slice join thread_track on slice.track_id = thread_track.id join thread using(utid) join process using(upid)
order by process, thread, slice.ts, slice.depth
"""

_DEPTH_LIMIT = 512
_PHASES = frozenset("XiICMsf")
_META: dict[str, type] = {"process_name": str, "thread_name": str, "process_labels": str, "process_sort_index": int,
         "thread_sort_index": int}  # fmt: skip


@dataclass(frozen=True)
class Slice:
    """A slice of a thread; an instant has ``dur`` 0. ``ts`` and ``dur`` are in nanoseconds, ``arguments`` its args."""

    process: str
    thread: str
    name: str
    ts: int
    dur: int
    depth: int
    arguments: tuple[tuple[str, Any], ...]


def load(text: str) -> tuple[list[Slice], list[str]]:
    """Return the slices in order of process, thread, time and depth, and the problems of the trace."""
    try:
        trace = json.loads(text, parse_constant=_no_json)
    except ValueError as error:
        return [], [f"not JSON: {error}"]
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        return [], ["no list traceEvents"]
    reader = _Reader()
    if isinstance(trace, dict) and "displayTimeUnit" in trace:
        reader.problems.append("displayTimeUnit scales all times in some versions")
    for number, event in enumerate(events):
        reader.take(number, event)
    return reader.slices(), reader.problems


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._processes: dict[int, str] = {}
        self._threads: dict[int, tuple[int, str]] = {}
        self._timed: list[tuple[int, int, int, int, dict[str, Any]]] = []

    def take(self, number: int, event: Any) -> None:
        problem = self._problem(event)
        if problem:
            self.problems.append(f"event {number}: {problem}")
        elif event["ph"] == "M":
            self._name(number, event)
        elif event["ph"] in "XiI":
            start, extent = _nanoseconds(event["ts"]), _nanoseconds(event.get("dur", 0))
            self._timed.append((start, event["pid"], event["tid"], extent, event))

    def _problem(self, event: Any) -> str | None:
        """Return the reason why the trace processor would not import the event; None if it would."""
        if not isinstance(event, dict) or event.get("ph") not in _PHASES:
            return f"its phase is none of {''.join(sorted(_PHASES))}: {str(event)[:80]}"
        for key in ("pid", "tid"):
            if type(event.get(key)) is not int or not 0 <= event[key] < 2**32:
                return f"{key} {event.get(key)!r} is not a 32-bit number"
        if not isinstance(event.get("name"), str) or not event["name"]:
            return "no name"
        if not isinstance(event.get("args", {}), dict):
            return "args is not an object"
        if event["ph"] == "M":
            return None
        for key in ("ts", "dur") if event["ph"] == "X" else ("ts",):
            value = event.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                return f"{key} {value!r} is not a time"
            if value * 1000 >= 2**63:
                return f"{key} {value!r} microseconds are beyond 64 bits of nanoseconds"
        if event["ph"] in "iI" and event.get("s", "t") not in ("t", "p", "g"):
            return f"scope {event['s']!r} of an instant is none of t, p, g"
        return None

    def _name(self, number: int, event: dict[str, Any]) -> None:
        name = event["name"]
        key = {"process_labels": "labels"}.get(name, "sort_index" if name.endswith("sort_index") else "name")
        value = event.get("args", {}).get(key)
        if name not in _META or not isinstance(value, _META[name]) or value == "":
            self.problems.append(f"event {number}: {name} with args {event.get('args')}")
        elif name == "process_name":
            self._processes[event["pid"]] = str(value)
        elif name == "thread_name":
            known = self._threads.setdefault(event["tid"], (event["pid"], str(value)))
            if known != (event["pid"], value):
                self.problems.append(f"event {number}: thread {event['tid']} is already {known[1]!r} of {known[0]}")

    def slices(self) -> list[Slice]:
        """Return the threads' slices by the slice tracker's rules for nesting, which reads events by time, then in file
        order."""
        slices: list[Slice] = []
        stacks: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for start, process, thread, extent, event in sorted(self._timed, key=lambda item: item[0]):
            stack = [parent for parent in stacks.get((process, thread), ()) if not _over(*parent, start, extent)]
            stacks[process, thread] = stack
            if any(start < opened + length < start + extent for opened, length in stack):
                self.problems.append(
                    f"{event['name']} at {start} ns of thread {thread} overlaps another and is dropped"
                )
            elif len(stack) >= _DEPTH_LIMIT:
                self.problems.append(f"{event['name']} at {start} ns of thread {thread} is nested too deep")
            else:
                owner, name = self._threads.get(thread, (process, ""))
                if owner != process or not name or process not in self._processes:
                    self.problems.append(f"{event['name']} at {start} ns: thread {thread} of {process} has no name")
                arguments = tuple(sorted(event.get("args", {}).items()))
                label = self._processes.get(process, "")
                slices.append(Slice(label, name, event["name"], start, extent, len(stack), arguments))
                stack.append((start, extent))
        return sorted(slices, key=lambda item: (item.process, item.thread, item.ts, item.depth))


def _over(opened: int, length: int, start: int, extent: int) -> bool:
    """Return whether a slice has ended when another starts. Instants at the same time nest."""
    end = opened + length
    return end < start or (end == start and not (length == 0 and extent == 0))


def _nanoseconds(microseconds: float) -> int:
    return microseconds * 1000 if isinstance(microseconds, int) else round(microseconds * 1000)
