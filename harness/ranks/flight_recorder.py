"""torch's flight recorder: which NCCL (RCCL) collectives of this process have been called and have not ended.

torch keeps the last collectives of each process with the place of their call. Reading them waits for no kernel.
A rank group sets ``ENVIRONMENT`` for every process group with nccl.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

ENVIRONMENT = {
    # The size of the recorder, in collectives; under its current name and under that of older releases.
    "TORCH_FR_BUFFER_SIZE": "256",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "256",
    # torch would write the recorder to /tmp when a collective fails; here it is part of the report of a hang.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    # torch's threads would abort the process on a kernel's error, before the rank could report it, and after some
    # minutes of a hang. The rank group has its own deadlines.
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
_STATES = {"scheduled": "enqueued, not ended", "started": "running, not ended", "completed": "ended"}
_LISTED = 8


def pending() -> str:
    """Return the collectives of this process that have not ended, oldest first, as text for a report."""
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_nccl_trace", None)
    if dump is None:
        return "(this build of torch has no flight recorder for NCCL)"
    # torch in this process has just written this pickle, so it holds no data from elsewhere.
    return text(pickle.loads(dump()))


def text(trace: Mapping[str, Any]) -> str:
    """Return the pending collectives in ``trace``, the recorder's content as torch pickles it, as text."""
    entries: Sequence[Mapping[str, Any]] = trace.get("entries") or ()
    groups = trace.get("pg_config") or {}
    open_ = [entry for entry in entries if entry.get("state") != "completed"]
    if not entries:
        return "the flight recorder of NCCL holds no collective"
    if not open_:
        return "\n".join(["no NCCL collective is pending; the last one was", *_lines(entries[-1], groups)])
    more = [f"  and {len(open_) - _LISTED} more"] if len(open_) > _LISTED else []
    lines = [line for entry in open_[:_LISTED] for line in _lines(entry, groups)]
    return "\n".join([f"pending NCCL collectives, {len(open_)}, oldest first", *lines, *more])


def _lines(entry: Mapping[str, Any], groups: Mapping[str, Any]) -> list[str]:
    number = entry.get("p2p_seq_id") if entry.get("is_p2p") else entry.get("collective_seq_id")
    name, description = entry.get("process_group") or ("?", "?")
    ranks = groups.get(name, {}).get("ranks", "unknown")
    shapes = ", ".join(
        f"{way} {_shapes(entry.get(f'{way}_sizes') or (), entry.get(f'{way}_dtypes') or ())}"
        for way in ("input", "output")
        if entry.get(f"{way}_sizes")
    )
    state = _STATES.get(str(entry.get("state")), str(entry.get("state")))
    head = f"  {entry.get('profiling_name', '?')} number {number} of group {name} ({description}), ranks {ranks}"
    lines = [f"{head}{': ' + shapes if shapes else ''}; {state}"]
    if (frame := _caller(entry.get("frames") or ())) is not None:
        lines.append(f"    called in {frame.get('name')} ({frame.get('filename')}:{frame.get('line')})")
    return lines


def _shapes(sizes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> str:
    names = [*dtypes, *["?"] * (len(sizes) - len(dtypes))]
    return " ".join(f"{dtype}{list(size)}" for size, dtype in zip(sizes, names, strict=False))


def _caller(frames: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the innermost frame outside torch."""
    for frame in frames:
        if "/torch/" not in str(frame.get("filename")):
            return frame
    return frames[0] if frames else None
