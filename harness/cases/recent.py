"""A short memory of values, such as the payloads that a case has made."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last ``limit`` different values that were added. Values must be hashable.

    Example: of limit 2, after adding 1, 2, 1 and 3 it holds 3 and 1.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[T, None] = {}

    def add(self, value: T) -> None:
        """Add ``value`` as the last one."""
        self._values.pop(value, None)
        self._values[value] = None
        if len(self._values) > self._limit:
            del self._values[next(iter(self._values))]

    def latest_first(self) -> tuple[T, ...]:
        """Return the values, the last one first."""
        return tuple(reversed(self._values))

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
