"""A module to preload: from then on this process behaves as one whose /proc lets nobody open files in memory."""

from __future__ import annotations

from harness.ranks import store

store._can_be_opened = lambda file: False  # type: ignore[assignment]
