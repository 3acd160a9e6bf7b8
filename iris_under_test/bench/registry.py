"""Which benchmarks there are, and what each is run for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .axes import parse_values, shown

__all__ = ["DEFAULT_RANKS", "RANKS_AXIS", "Benchmark", "axis", "register", "registered"]

RANKS_AXIS = "num_ranks"
DEFAULT_RANKS = 8
"""The world size of a benchmark without the axis num_ranks."""

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "_iris_bench_axes"
_registered: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """A registered function ``function(state, ctx)``."""

    name: str
    function: Callable[..., Any]

    @property
    def axes(self) -> dict[str, list[Any]]:
        """Name -> values, outermost first."""
        return dict(getattr(self.function, _ATTRIBUTE, ()))

    def configurations(self, chosen: Mapping[str, str], unwanted: Mapping[str, str]) -> list[dict[str, Any]]:
        """One dict of axis values per configuration, the outermost axis varying slowest.

        ``chosen`` replaces the values of axes, ``unwanted`` removes values; both as text of the command line, and only
        where the benchmark has that axis. Without a num_ranks axis it has the one value 8.

        Raises:
            ValueError: the text is not understood, or a world size is not a positive integer.
        """
        axes = {name: wanted(name, values, chosen, unwanted) for name, values in self.axes.items()}
        axes = {RANKS_AXIS: [DEFAULT_RANKS], **axes} if RANKS_AXIS not in axes else axes
        for ranks in axes[RANKS_AXIS]:
            if not isinstance(ranks, int) or ranks < 1:
                raise ValueError(f"{self.name}: {RANKS_AXIS} must be positive integers, got {ranks!r}")
        return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

    def named(self, values: Mapping[str, Any]) -> str:
        """``all_gather/num_ranks=2/M=1024``."""
        return "/".join([self.name, *(f"{name}={shown(value)}" for name, value in values.items())])


def axis(name: str, values: Sequence[Any]) -> Callable[[Function], Function]:
    """Decorator: the benchmark runs for each of ``values``, which it finds as ``state[name]``. Stacked, every
    combination runs, and the outermost (topmost) axis varies slowest.

    The axis ``num_ranks`` is the world size: the ranks of each of its values are started together once.

    Raises:
        ValueError: no values, or the function has an axis of that name already.
    """
    listed = list(values)
    if not listed:
        raise ValueError(f"axis {name!r} has no values")

    def decorate(function: Function) -> Function:
        inner = getattr(function, _ATTRIBUTE, ())
        if name in dict(inner):
            raise ValueError(f"{function.__name__} has two axes {name!r}")
        # Decorators are applied from the innermost on. The function itself stays what it is: ranks find it by its name.
        setattr(function, _ATTRIBUTE, ((name, listed), *inner))
        return function

    return decorate


def register(function: Function) -> Function:
    """Decorator: ``function(state, ctx)`` is a benchmark that ``main`` runs, on every rank. Returns it unchanged.

    It prepares its tensors with ``ctx``, an ``Iris``, reports to ``state`` what it moves, and passes ``state.exec`` the
    function to time. It must be importable by its name, since ranks are processes of their own.

    Raises:
        ValueError: a benchmark of that name is registered already.
    """
    name = function.__name__
    if name in _registered:
        raise ValueError(f"there is a benchmark {name!r} already")
    _registered[name] = Benchmark(name, function)
    return function


def wanted(name: str, values: Sequence[Any], chosen: Mapping[str, str], unwanted: Mapping[str, str]) -> list[Any]:
    """An axis' values as the command line has them: ``chosen`` in place of ``values``, then without ``unwanted``.

    Raises:
        ValueError: the text is not understood.
    """
    kept = parse_values(chosen[name], values) if name in chosen else list(values)
    removed = parse_values(unwanted[name], kept) if name in unwanted else []
    return [value for value in kept if value not in removed]


def registered() -> dict[str, Benchmark]:
    """The benchmarks by name, in order of registration."""
    return dict(_registered)
