"""Times of ``iris-harness bench`` on a GPU, of the base and of the head, cell by cell."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from command_line.gate.statistics import Comparison, compare
from harness.errors import UsageError

_CELL = {"type": "object", "required": ["backend", "cus", "config", "status", "times_us"]}
_SIZE = {
    "type": "object",
    "required": ["bytes", "cells"],
    "properties": {"bytes": {"type": "integer"}, "cells": {"type": "array", "items": _CELL}},
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["schema", "request", "sizes"],
    "properties": {
        "schema": {"const": 1},
        "request": {"type": "object", "required": ["op", "device", "arch", "ranks", "dtype"]},
        "sizes": {"type": "array", "items": _SIZE},
    },
}
_MACHINE = ("device", "arch", "ranks")


def compared(pairs: Iterable[tuple[Path, Path]], *, medians: bool = False) -> Iterator[tuple[str, Comparison | None]]:
    """Yield each cell of the library in the pairs of files (base, head), and the comparison of its times.

    The files are ``bench.json``; several pairs, taken in turn on one machine, add their rounds, or with ``medians`` the
    median of each file: rounds of one process are alike, so that only the medians are independent samples. None: one
    side has no time of the cell, or a wrong output. UsageError for a file that is not a benchmark on a GPU, and for
    files of different machines.
    """
    sides: tuple[dict[str, list[float]], dict[str, list[float]]] = (defaultdict(list), defaultdict(list))
    machines: dict[tuple[Any, ...], Path] = {}
    for pair in pairs:
        for path, times in zip(pair, sides, strict=True):
            plain = _read(path)
            request = plain["request"]
            machines.setdefault(tuple(request[name] for name in _MACHINE), path)
            for cell, rounds in _cells(plain):
                times[cell] += [statistics.median(rounds)] if medians and rounds else rounds
    if len(machines) > 1:
        (one, first), (other, second) = list(machines.items())[:2]
        raise UsageError(f"--times: {first} is of {_words(one)}, and {second} of {_words(other)}")
    base, head = sides
    for cell in dict.fromkeys([*base, *head]):
        yield cell, compare(base[cell], head[cell]) if base[cell] and head[cell] else None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        plain: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--times {path}: it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--times {path}: expected a bench.json of iris-harness bench: {error}") from None
    problem = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(_SCHEMA).iter_errors(plain))
    if problem is not None:
        raise UsageError(f"--times {path}: expected a bench.json of iris-harness bench: {problem.message:.150}")
    if plain["request"]["device"] == "emulated":
        raise UsageError(f"--times {path}: its times are of the emulated device, which are not times of a GPU")
    return dict(plain)


def _cells(plain: Mapping[str, Any]) -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each cell of the library, and its times: that of the slowest rank in each round."""
    request = plain["request"]
    for size in plain["sizes"]:
        for cell in size["cells"]:
            if str(cell["backend"]).startswith("torch"):
                continue
            settings = [f"{name} {value}" for name, value in cell["config"].items()]
            settings += [] if cell["cus"] is None else [f"{cell['cus']} CUs"]
            name = " ".join([request["op"], request["dtype"], f"{size['bytes']} B", cell["backend"], *settings])
            yield name, [max(ranks) for ranks in cell["times_us"]] if cell["status"] == "ok" else []


def _words(machine: Sequence[Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(_MACHINE, machine, strict=True))
