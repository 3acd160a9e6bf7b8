"""``State``: the axis values that a benchmark reads, and the figures that it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["State", "check"]


class State:
    """One configuration of one benchmark, on one rank. All ranks must report the same. A figure may be a number
    of any kind, also numpy's, or a tensor of one element; anything else is a TypeError or ValueError.

    ``state[name]`` is the value of an axis (KeyError with the available names), ``state.get(name, default)``
    likewise; ``num_ranks`` is always there.
    """

    def __init__(self, values: Mapping[str, Any], *, n_warmup: int, n_repeat: int, use_gluon: bool) -> None:
        self.n_warmup = n_warmup
        self.n_repeat = n_repeat
        self.bytes: int | None = None
        self.flops: float | None = None
        self.counters: dict[str, float] = {}
        self.skipped: str | None = None
        self.fn: Callable[[], Any] | None = None
        self.preamble_fn: Callable[[], Any] = _nothing
        self.check_fn: Callable[[], Any] | None = None
        self._values = dict(values)
        self._use_gluon = use_gluon
        self._asked_for_gluon = False

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"no axis {name!r}: there are {', '.join(self._values)}")
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an axis, or ``default`` where the benchmark has no such axis."""
        return self._values.get(name, default)

    @property
    def use_gluon(self) -> bool:
        """The option ``--use_gluon``. A benchmark that never reads it refuses to run with it, so that no figure carries
        the wrong name (in upstream Iris the option does nothing)."""
        self._asked_for_gluon = True
        return self._use_gluon

    def set_bytes(self, count: int) -> None:
        """Set the bytes that one call moves, for the bandwidth in GB/s."""
        self.bytes = int(count)

    def set_flops(self, count: float) -> None:
        """Set the floating point operations of one call, for TFLOPS."""
        self.flops = float(count)

    def add_counter(self, name: str, value: float) -> None:
        """A further column of the results."""
        self.counters[name] = float(value)

    def set_warmup(self, count: int) -> None:
        """Warm-up calls of this benchmark, in place of ``--n_warmup``."""
        self.n_warmup = int(count)

    def set_repeat(self, count: int) -> None:
        """Timed calls of this benchmark, in place of ``--n_repeat``."""
        self.n_repeat = int(count)

    def exec(
        self,
        fn: Callable[[], Any],
        *,
        preamble_fn: Callable[[], Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
    ) -> None:
        """Register the function to time; it runs once the benchmark has returned. ``preamble_fn`` runs untimed before
        each call. ``check_fn`` runs once behind the last: the figures count only where it is true on every rank (not in
        upstream Iris).

        Raises:
            RuntimeError: the benchmark has called it before.
        """
        if self.fn is not None:
            raise RuntimeError("the benchmark called state.exec twice")
        self.fn = fn
        self.preamble_fn = preamble_fn or _nothing
        self.check_fn = check_fn

    def skip(self, reason: str) -> None:
        """Skip this configuration; the results show the reason. The benchmark should ``return`` after it."""
        self.skipped = str(reason)


def check(state: State) -> None:
    """Check that the benchmark, which has returned, used its state as it must.

    Raises:
        RuntimeError: it called neither ``exec`` nor ``skip``, or ``--use_gluon`` was given and it never read
            ``state.use_gluon``.
    """
    if state.skipped is not None:
        return
    if state.fn is None:
        raise RuntimeError("the benchmark returned without a call of state.exec or state.skip")
    if state._use_gluon and not state._asked_for_gluon:
        raise RuntimeError("--use_gluon was given, but the benchmark never looks at state.use_gluon")


def _nothing() -> None:
    pass
