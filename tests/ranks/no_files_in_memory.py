"""Module to preload: afterwards this process behaves as if /proc allowed no process to open files in memory."""

from __future__ import annotations

from harness.ranks import store

store._can_be_opened = lambda file: False  # type: ignore[assignment]
