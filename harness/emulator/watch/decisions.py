"""Decisions of a watched mode for native functions: the state in which they take random words, or call Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

from harness.emulator.native import weak_state
from harness.emulator.watch.choices import AGE, HOW_OFTEN, SWITCHES, WHICH_WAVEFRONT, Choices, Lazy, Seeded

_DECISIONS = (
    AGE, "which access completes", "memory moves", "what moves", "which line", HOW_OFTEN, SWITCHES, WHICH_WAVEFRONT,
)  # fmt: skip
BLOCK_BYTES, MOST_KEPT_BLOCKS = 1 << 20, 16
_SERVICE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Decisions:
    """The state described in ``native.weak_state``, at ``address``, of which this class sets what decisions need.

    ``services``: more Python functions ``int(int, int)`` that native code calls, by the field that gets the address.
    The function of ``unfailing``, a field, is called even after another one has failed.
    """

    def __init__(
        self,
        choices: Choices,
        services: Mapping[int, Callable[[int, int], int]] | None = None,
        unfailing: int | None = None,
    ) -> None:
        self._choices = choices
        self._memory = aligned(weak_state.STATE_BYTES)
        self.address = self._memory.ctypes.data
        self._state = self._memory.view(np.int64)
        self._blocks: list[np.ndarray] = []
        self._used_blocks = 0
        # An exception in a function that native code called: raised when the native code has returned.
        self._failure: BaseException | None = None
        functions = {weak_state.PICK: self._pick, **(services or {})}
        self._services = {
            field: _SERVICE(self._guarded(function, field == unfailing)) for field, function in functions.items()
        }
        for field, service in self._services.items():
            self._set(field, ctypes.cast(service, ctypes.c_void_p).value or 0)
        if type(choices) in (Seeded, Lazy):
            assert isinstance(choices, Seeded)  # sanity check
            self._set(weak_state.PLACE, choices.place.ctypes.data)
            self._set(weak_state.WORDS, choices.words.ctypes.data)
            self._set(weak_state.WORD_COUNT, len(choices.words))
            self._set(weak_state.LAZY, type(choices) is Lazy)

    def raise_failure(self) -> None:
        """Raise what a function that native code called has raised, if anything."""
        failure, self._failure = self._failure, None
        self._set(weak_state.FAILED, 0)
        if failure is not None:
            raise failure

    def more_memory(self, size: int) -> None:
        """Provide memory for ``weak_state.allocate``: for a structure of ``size`` bytes, and others."""
        while True:
            if self._used_blocks == len(self._blocks):
                self._blocks.append(aligned(max(BLOCK_BYTES, size), np.empty))
            block = self._blocks[self._used_blocks]
            self._used_blocks += 1
            if block.nbytes >= size:
                break
        self._set(weak_state.NEXT, block.ctypes.data)
        self._set(weak_state.END, block.ctypes.data + block.nbytes)

    def forget_structures(self) -> None:
        """Make the memory of all structures available again."""
        self._set(weak_state.NEXT, 0)
        self._set(weak_state.END, 0)
        self._state[weak_state.FREE // 8 : weak_state.SEEN_LINE // 8] = 0
        self._used_blocks = 0
        del self._blocks[MOST_KEPT_BLOCKS:]

    def _get(self, field: int) -> int:
        return int(self._state[field >> 3])

    def _set(self, field: int, value: int) -> None:
        self._state[field >> 3] = value

    def _guarded(self, function: Callable[[int, int], int], unfailing: bool) -> Callable[[int, int], int]:
        def service(a: int, b: int) -> int:
            if self._failure is not None and not unfailing:
                return 0
            try:
                return function(a, b)
            except BaseException as error:  # noqa: BLE001 - native code cannot raise it; ``raise_failure`` does
                self._failure = error
                self._set(weak_state.FAILED, 1)
                return 0

        return service

    def _pick(self, n: int, decision: int) -> int:
        if n == 0:
            assert isinstance(self._choices, Seeded)  # sanity check
            self._choices.draw()
            return 0
        return self._choices.pick(n, _DECISIONS[decision])


def aligned(size: int, make: Callable[..., np.ndarray] = np.zeros) -> np.ndarray:
    """Return memory that starts at a multiple of 64; ``make``: NumPy's function for it, such as ``empty``."""
    memory = make(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size]
