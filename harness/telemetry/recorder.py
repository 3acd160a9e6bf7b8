"""Protocol of a telemetry recorder, and the sum of several ranks' windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from harness.errors import HarnessError

Window = dict[str, Any]


class Recorder(Protocol):
    """Records one window at a time; used from one thread of one rank process."""

    def begin(self) -> None:
        """Start a window; earlier launches are not part of it."""

    def end(self) -> Window:
        """End the window and return it. Raises HarnessError if no window was started."""


def merge_windows(windows: Iterable[Window]) -> Window:
    """Return one window for all ranks: counts are summed, ``seconds`` is the longest, ``ranks`` is their number."""
    merged: Window = {}
    count = 0
    for window in windows:
        count += 1
        if merged and merged["source"] != window["source"]:
            raise HarnessError(f"windows of {merged['source']} and {window['source']} cannot be summed")
        for key, value in window.items():
            if isinstance(value, Mapping):
                merged[key] = dict(sorted((Counter(merged.get(key, {})) + Counter(value)).items()))
            elif key == "seconds":
                merged[key] = max(merged.get(key, 0.0), value)
            elif isinstance(value, int):
                merged[key] = merged.get(key, 0) + value
            else:
                merged[key] = value
    return {**merged, "ranks": count} if count else {}
