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

    def configurations(self, asked: Mapping[str, str], unwanted: Mapping[str, str]) -> list[dict[str, Any]]:
        """One dict of axis values per configuration, the outermost axis varying slowest.

        ``asked`` replaces the values of axes, ``unwanted`` takes values out; both as text of the command line, and only
        where the benchmark has that axis. Without a num_ranks axis it has the one value 8.

        Raises:
            ValueError: the text is not understood, or a world size is no positive integer.
        """
        axes = {name: wanted(name, values, asked, unwanted) for name, values in self.axes.items()}
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
    found = list(values)
    if not found:
        raise ValueError(f"axis {name!r} has no values")

    def decorate(function: Function) -> Function:
        inner = getattr(function, _ATTRIBUTE, ())
        if name in dict(inner):
            raise ValueError(f"{function.__name__} has two axes {name!r}")
        # Decorators are applied from the innermost on. The function itself stays what it is: ranks find it by its name.
        setattr(function, _ATTRIBUTE, ((name, found), *inner))
        return function

    return decorate


def register(function: Function) -> Function:
    """Decorator: ``function(state, ctx)`` is a benchmark that ``main`` runs, on every rank. Returns it unchanged.

    It prepares its tensors with ``ctx``, an ``Iris``, tells ``state`` what it moves, and hands ``state.exec`` what is
    to be timed. It must be importable by its name, since ranks are processes of their own.

    Raises:
        ValueError: a benchmark of that name is registered already.
    """
    name = function.__name__
    if name in _registered:
        raise ValueError(f"there is a benchmark {name!r} already")
    _registered[name] = Benchmark(name, function)
    return function


def wanted(name: str, values: Sequence[Any], asked: Mapping[str, str], unwanted: Mapping[str, str]) -> list[Any]:
    """An axis' values as the command line has them: ``asked`` in place of ``values``, and then without ``unwanted``.

    Raises:
        ValueError: the text is not understood.
    """
    chosen = parse_values(asked[name], values) if name in asked else list(values)
    gone = parse_values(unwanted[name], chosen) if name in unwanted else []
    return [value for value in chosen if value not in gone]


def registered() -> dict[str, Benchmark]:
    """The benchmarks by name, in order of registration."""
    return dict(_registered)
