"""The plan of a night: a TOML file, checked in every detail before anything starts."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line.commands.check import select
from command_line.preflight import Request, check_request
from fixtures.implementation import BUNDLED
from harness.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_AXES = ("device", "arch", "ranks", "mode", "level", "implementation")
"""Keys of a leg whose value may be a list: the leg stands for one leg with each combination of them."""

_LEG: dict[str, type] = {
    "name": str, "budget": str, "device": str, "arch": str, "ranks": int, "mode": str, "level": str,
    "implementation": str, "adapter": str, "judge": str, "api": str, "ranks_per_gpu": int,
    "requirements": str,
}  # fmt: skip
_SOAK: dict[str, type] = {
    "budget": str, "device": str, "arch": str, "ranks": int, "mode": str, "implementation": str, "groups": int,
    "memory_mib": int, "heap_kib": int, "files": int, "threads": int,
}  # fmt: skip
_TABLES: dict[str, dict[str, type]] = {
    "corpus": {"folder": str, "budget": str, "mended_after": int},
    "history": {"file": str},
    "soak": _SOAK,
}
_REQUIRED = {"leg": ("name", "budget"), "corpus": (), "history": (), "soak": ("budget",)}


@dataclass(frozen=True)
class Leg:
    """One run of the suite: its name, its checked request without a seed, and its budget in seconds.

    ``requirements``: the ids that it is limited to; none for the whole suite.
    """

    name: str
    request: Request
    budget: float
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """The folder of the reduced failures. ``mended_after``: nights in a row that a case passes until it counts as
    mended."""

    folder: Path
    budget: float = 1200.0
    mended_after: int = 5


@dataclass(frozen=True)
class Soak:
    """Mixed traffic on one warm rank group, for ``budget`` seconds: ``groups`` of the suite in each round, and the
    growth over all rounds that is allowed for each process: ``memory_mib``, open ``files``, ``threads``; and by how
    much the room in each rank's heap may shrink, ``heap_kib``."""

    request: Request
    budget: float
    groups: int = 6
    memory_mib: int = 64
    heap_kib: int = 32
    files: int = 8
    threads: int = 4


@dataclass(frozen=True)
class Plan:
    """A plan: its title, its legs in order, and where corpus and history are. ``digest`` is the hash of the file."""

    path: Path
    name: str
    digest: str
    legs: tuple[Leg, ...]
    corpus: Corpus
    history: Path
    soak: Soak | None = None

    @property
    def implementations(self) -> tuple[str, ...]:
        """The implementations that the plan names."""
        return tuple(dict.fromkeys(leg.request.implementation for leg in self.legs))


def read_plan(path: Path) -> Plan:
    """Return the checked plan. Raises UsageError, in one line that names the place, for the first mistake."""
    try:
        content = path.read_bytes()
        plain = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {' '.join(str(error).split()):.200}") from error
    _known_keys(plain, {"name": str, "leg": list, **dict.fromkeys(_TABLES, dict)}, f"{path}")
    tables = {name: plain.get(name, {}) for name in _TABLES}
    for name, table in tables.items():
        if name in plain:
            _check_table(table, _TABLES[name], _REQUIRED[name], f"{path}: [{name}]")
    legs = tuple(_legs(plain.get("leg", []), path))
    if not legs and "soak" not in plain:
        raise UsageError(f"{path} has neither [[leg]] nor [soak]: there is nothing to run")
    names = [leg.name for leg in legs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: two legs are called {twice[0]}: give each [[leg]] its own name")
    folder = path.absolute().parent
    database = folder / tables["history"].get("file", "history.sqlite")
    if not database.parent.is_dir():
        raise UsageError(
            f"{path}: [history] file: there is no folder {database.parent}: create it, or name another file"
        )
    corpus, soak = tables["corpus"], tables["soak"]
    return Plan(
        path,
        plain.get("name", path.stem),
        hashlib.sha256(content).hexdigest(),
        legs,
        Corpus(
            folder / corpus.get("folder", "corpus"),
            duration(corpus.get("budget", "20m"), f"{path}: [corpus] budget"),
            _count(corpus.get("mended_after", 5), f"{path}: [corpus] mended_after"),
        ),
        database,
        _soak(soak, f"{path}: [soak]") if soak else None,
    )


def duration(text: str, where: str) -> float:
    """Return the seconds that a text such as ``90s``, ``20m`` or ``1.5h`` names. UsageError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{where}: expected a time such as 90s, 20m or 2h, got {text!r:.60}")
    return float(match[1]) * _SECONDS[match[2]]


def _legs(entries: list[Any], path: Path) -> Iterator[Leg]:
    for number, entry in enumerate(entries, 1):
        where = f"{path}: [[leg]] {number}"
        if not isinstance(entry, dict):
            raise UsageError(f"{where}: expected a table, got {entry!r:.60}")
        name = entry.get("name")
        where += f" ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else ""
        _check_table(entry, _LEG, _REQUIRED["leg"], where, listed=(*_AXES, "requirements"))
        if not _NAME.fullmatch(entry["name"]):
            raise UsageError(f"{where}: name: expected lower-case letters, digits and -, got {entry['name']!r:.60}")
        if entry["name"] in _TABLES:
            raise UsageError(f"{where}: name: {entry['name']!r} names another part of a night: choose another one")
        budget = duration(entry["budget"], f"{where}: budget")
        requirements = _requirements(entry.get("requirements", ()), where)
        axes = {key: entry[key] if isinstance(entry.get(key), list) else [entry.get(key)] for key in _AXES}
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            suffix = "".join(f"-{_short(key, chosen[key])}" for key in _AXES if len(axes[key]) > 1)
            yield Leg(f"{name}{suffix}", _request({**entry, **chosen}, where), budget, requirements)


def _requirements(given: str | Sequence[str], where: str) -> tuple[str, ...]:
    """Return the ids of requirements that ids, their beginnings or public names select."""
    selected: dict[str, None] = {}
    for name in [given] if isinstance(given, str) else given:
        try:
            chosen = select(name).requirements
        except UsageError as error:
            raise UsageError(f"{where}: requirements: {error}") from None
        if not chosen:
            raise UsageError(f"{where}: requirements: {name!r:.60} is a test: name requirements, such as RMA-PUT-001")
        selected |= dict.fromkeys(chosen)
    return tuple(selected)


def _request(entry: Mapping[str, Any], where: str) -> Request:
    try:
        return check_request(
            entry.get("device") or "emulated",
            entry.get("arch"),
            str(entry["ranks"]) if entry.get("ranks") is not None else None,
            entry.get("level") or "gate",
            entry.get("implementation") or BUNDLED,
            mode=entry.get("mode") or "fast",
            ranks_per_gpu=entry.get("ranks_per_gpu", 1),
            adapter=entry.get("adapter"),
            api=entry.get("api", "extended"),
            judge=entry.get("judge"),
        )
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _soak(entry: Mapping[str, Any], where: str) -> Soak:
    limits = {
        key: _count(entry[key], f"{where} {key}")
        for key in ("groups", "memory_mib", "heap_kib", "files", "threads")
        if key in entry
    }
    request = _request({"ranks": 2, "level": "ci", "judge": "together", **entry}, where)
    return Soak(request, duration(entry["budget"], f"{where} budget"), **limits)


def _check_table(
    entry: Mapping[str, Any],
    types: Mapping[str, type],
    required: tuple[str, ...],
    where: str,
    listed: tuple[str, ...] = (),
) -> None:
    _known_keys(entry, types, where)
    for key in required:
        if key not in entry:
            raise UsageError(f"{where} lacks {key}")
    for key, value in entry.items():
        several = key in listed and isinstance(value, list)
        for each in value if several else [value]:
            if type(each) is not types[key]:
                expected = {str: "text", int: "a whole number"}.get(types[key], types[key].__name__)
                raise UsageError(f"{where}: {key}: expected {expected}, got {each!r:.60}")
        if several and (not value or len(set(value)) < len(value)):
            raise UsageError(f"{where}: {key}: expected a list of different values, got {value!r:.60}")


def _known_keys(entry: Mapping[str, Any], types: Mapping[str, type], where: str) -> None:
    for key, value in entry.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(types)}"
            raise UsageError(f"{where}: unknown key {key!r:.60}: {hint}")
        if types[key] in (list, dict) and not isinstance(value, types[key]):
            raise UsageError(f"{where}: {key}: expected {'[[leg]]' if key == 'leg' else f'[{key}]'}, got {value!r:.60}")
    if not isinstance(entry.get("name", ""), str):
        raise UsageError(f"{where}: name: expected text, got {entry['name']!r:.60}")


def _count(value: Any, where: str) -> int:
    if not 0 < value <= 1_000_000:
        raise UsageError(f"{where}: expected a number from 1 to 1,000,000, got {value!r:.60}")
    return int(value)


def _short(key: str, value: Any) -> str:
    text = f"ranks{value}" if key == "ranks" else str(value)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
