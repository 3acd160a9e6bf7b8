"""Export of a timeline to the Chrome "Trace Event Format", JSON that ui.perfetto.dev and its trace processor read.

A process is a rank. Its first thread shows the launches, each other thread one wavefront: slices from barrier to
barrier, with waits and accesses inside them, and arrows (flow events) from a store to the access that first reads its
value. Counters show bytes accessed and LDS bank conflicts. One microsecond stands for one executed
wavefront-instruction. Addresses are offsets into allocations, so that the same run gives the same file.
"""

from __future__ import annotations

import json
from typing import Any

from harness.emulator.watch.timeline import Timeline

_LAUNCHES = 0
Event = dict[str, Any]


def as_json(timeline: Timeline, wavefronts: int) -> str:
    """Return the trace, one event per line; up to ``wavefronts`` wavefronts of each rank are shown."""
    events = [*_names(timeline, wavefronts), *sorted(_timed(timeline, wavefronts), key=lambda event: event["ts"])]
    others = {
        "time": "1 us is one executed wavefront-instruction",
        "wavefronts left out": sum(len(waves[wavefronts:]) for waves in _waves(timeline).values()),
        **{f"{kind} left out": count for kind, count in timeline.dropped.items()},
    }
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(others)},"traceEvents":[\n{lines}\n]}}\n'


def _waves(timeline: Timeline) -> dict[int, range]:
    """Return the wavefront numbers of each rank's largest launch."""
    largest: dict[int, int] = {}
    for launch in timeline.launches:
        x, y, z = launch.grid
        largest[launch.rank] = max(largest.get(launch.rank, 0), x * y * z * launch.waves_per_group)
    return {rank: range(count) for rank, count in sorted(largest.items())}


def _names(timeline: Timeline, wavefronts: int) -> list[Event]:
    events = []
    for rank, waves in _waves(timeline).items():
        left_out = len(waves[wavefronts:])
        events.append(_meta("process_name", rank, 0, name=f"rank {rank}"))
        if left_out:
            events.append(_meta("process_labels", rank, 0, labels=f"{left_out} wavefronts left out"))
        events.append(_meta("thread_name", rank, _LAUNCHES, name="launches"))
        for wave in waves[:wavefronts]:
            events.append(_meta("thread_name", rank, wave + 1, name=f"wavefront {wave}"))
            events.append(_meta("thread_sort_index", rank, wave + 1, sort_index=wave + 1))
    return events


def _timed(timeline: Timeline, wavefronts: int) -> list[Event]:
    """Return the slices, each before the events inside it: events of one time are read in this order."""
    events = []
    for launch in timeline.launches:
        end = timeline.now if launch.end is None else launch.end
        arguments = {"grid": list(launch.grid), "wavefronts in a work-group": launch.waves_per_group}
        events.append(_slice(launch.rank, _LAUNCHES, launch.kernel, launch.start, end, arguments))
    for span in sorted(timeline.spans, key=lambda span: (span.start, -span.end)):
        if span.wavefront < wavefronts:
            where = {"source": span.source} if span.source else {}
            events.append(_slice(span.rank, span.wavefront + 1, span.name, span.start, span.end, where))
    for record in timeline.accesses:
        if record.wavefront < wavefronts:
            arguments = {"bytes": record.bytes, "allocation": record.allocation, "offset": record.offset,
                    "memory": "peer" if record.peer else "local", "source": record.source}  # fmt: skip
            name = record.instruction.split()[0]
            events.append(_slice(record.rank, record.wavefront + 1, name, record.step, record.step + 1, arguments))
    for number, (store, load) in enumerate(timeline.flows):
        if max(store.wavefront, load.wavefront) < wavefronts:
            for phase, record in (("s", store), ("f", load)):
                event = _event(phase, record.rank, record.wavefront + 1, "value", record.step)
                events.append({**event, "cat": "memory", "id": number, **({"bp": "e"} if phase == "f" else {})})
    for sample in timeline.samples:
        moved = {"local": sample.local, "peer": sample.peer}
        events.append({**_event("C", sample.rank, 0, "bytes accessed", sample.step), "args": moved})
        if sample.conflicts:
            lost = {"cycles": sample.conflicts}
            events.append({**_event("C", sample.rank, 0, "LDS bank conflicts", sample.step), "args": lost})
    return events


def _event(phase: str, rank: int, thread: int, name: str, at: int) -> Event:
    return {"ph": phase, "pid": rank, "tid": thread, "name": name, "ts": at}


def _slice(rank: int, thread: int, name: str, start: int, end: int, arguments: dict[str, Any]) -> Event:
    return {**_event("X", rank, thread, name, start), "dur": end - start, "args": arguments}


def _meta(kind: str, rank: int, thread: int, **arguments: object) -> Event:
    return {"ph": "M", "pid": rank, "tid": thread, "name": kind, "args": arguments}
