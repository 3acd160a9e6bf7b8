"""Tuning tables: the configurations that were measured best, which collectives use with ``config=None``.

The library has a table per architecture in ``ccl/tables``. If ``IRIS_CCL_TUNING`` names a file, that file is searched
first, and the library's own table only if the file has no entry. Both have the format that ``iris-harness bench OP
--tune FILE`` writes:

    {"schema": 1,
     "entries": [{"arch": "sm_90", "op": "all_gather", "use_gluon": false, "element_size": 2, "world_size": 4,
                  "bytes": 8192, "config": {"block_size_m": 4, "block_size_n": 256, "comm_sms": 16},
                  "measured": "4 x NVIDIA H200: 9.8 us, NCCL 14.1 us"}]}

``config`` holds fields of ``Config``; missing fields have their defaults. ``bytes`` is the size as nccl-tests count it,
the larger of one rank's input and output. ``measured`` is for readers; null means not measured.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from iris_under_test.device.flagged import MAX_SENDERS

from .config import LL_ALGORITHMS, Config

__all__ = ["TUNED_OPS", "TUNING_VARIABLE", "tuned_config"]

TUNING_VARIABLE = "IRIS_CCL_TUNING"
TUNED_OPS = (
    "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter", "gather", "send",
)  # fmt: skip

_SCHEMA = 1
_TABLES = Path(__file__).with_name("tables")
_MAX_PROGRAMS = 1024
_OWNERSHIP = ("block_size_m", "block_size_n", "swizzle_size", "all_reduce_distribution")
"""Fields that decide which tiles of a reduce_scatter a rank writes: the meaning of a call must not depend on a
table.
"""
_KEYS = ("arch", "op", "use_gluon", "element_size", "world_size", "bytes", "config", "measured")


def tuned_config(
    op: str, *, element_size: int, world_size: int, nbytes: int, arch: str | None = None, use_gluon: bool = False
) -> Config:
    """Return the configuration that ``ccl.<op>`` uses with ``config=None``. A new object with each call.

    Args:
        op: one of ``TUNED_OPS``.
        element_size: bytes of an element.
        world_size: members of the group.
        nbytes: the larger of one rank's input and output, in bytes: the output of all_gather, the input of
            reduce_scatter.
        arch: "sm_90", "gfx942", ...; None means the active device's.
        use_gluon: for the Gluon kernels instead of Triton's.

    The nearest entry is used: first by world size, then by element size, then by bytes, each as a ratio. A tile keeps
    its size in bytes: an entry for another element size gets more or fewer rows. Entries of the "ll" protocol are used
    only for cases that it supports. An architecture without an entry uses entries of another one of its vendor, and if
    there are none, the defaults of ``Config``.

    Raises:
        ValueError: an unknown op; or the file of ``IRIS_CCL_TUNING`` cannot be read or has a bad entry, which the
            message names with the reason. Every entry is checked, also those for other ops and devices.
    """
    if op not in TUNED_OPS:
        raise ValueError(f"op must be one of {', '.join(TUNED_OPS)}, got {op!r}")
    arch = arch if arch is not None else _active_arch()
    entry = _nearest(os.environ.get(TUNING_VARIABLE, ""), arch, op, use_gluon, element_size, world_size, nbytes)
    return Config(use_gluon=use_gluon) if entry is None else entry.made_for(element_size)


@dataclass(frozen=True)
class _Entry:
    """One entry of a table; ``config`` are fields of ``Config``."""

    arch: str
    op: str
    use_gluon: bool
    element_size: int
    world_size: int
    bytes: int
    config: Mapping[str, Any]

    def fits(self, element_size: int, world_size: int) -> bool:
        """Return whether the entry can be used for such elements and that many members.

        "partitioned" divides its programs by the members; "ll" is for few members, and for elements of at most 4 bytes.
        """
        made = Config(**self.config)
        if made.protocol == "ll" and (element_size > 4 or world_size > MAX_SENDERS.value):
            return False
        divides = self.op == "all_gather" and made.all_gather_variant == "partitioned"
        return not divides or made.comm_sms % world_size == 0

    def distance(self, element_size: int, world_size: int, nbytes: int) -> tuple[float, float, float]:
        """Return the distance from the requested case: of world size, element size and bytes."""
        return (
            _apart(self.world_size, world_size),
            _apart(self.element_size, element_size),
            _apart(self.bytes, max(nbytes, 1)),
        )

    def made_for(self, element_size: int) -> Config:
        """Return the entry's configuration, with the rows of a tile scaled so that it keeps the bytes that were
        measured.
        """
        chosen = dict(self.config)
        if "block_size_m" in chosen and self.op != "reduce_scatter":
            chosen["block_size_m"] = max(1, chosen["block_size_m"] * self.element_size // element_size)
        return Config(use_gluon=self.use_gluon, **chosen)


@lru_cache(maxsize=1024)
def _nearest(
    file: str, arch: str, op: str, use_gluon: bool, element_size: int, world_size: int, nbytes: int
) -> _Entry | None:
    for table in ([_read(file)] if file else []) + [_own_table(arch)]:
        entries = [entry for entry in table if entry.op == op and entry.use_gluon == use_gluon]
        entries = [entry for entry in entries if entry.fits(element_size, world_size)]
        own = [entry for entry in entries if entry.arch == arch]
        near = own or [entry for entry in entries if _make(entry.arch) == _make(arch)]
        if near:
            return min(near, key=lambda entry: entry.distance(element_size, world_size, nbytes))
    return None


@lru_cache(maxsize=8)
def _own_table(arch: str) -> tuple[_Entry, ...]:
    """Return the library's table of that architecture, or those of its vendor if it has none."""
    path = _TABLES / f"{arch}.json"
    paths = [path] if path.exists() else sorted(_TABLES.glob(f"{_make(arch)}*.json"))
    return tuple(entry for path in paths for entry in _read(str(path)))


@lru_cache(maxsize=8)
def _read(path: str) -> tuple[_Entry, ...]:
    """Return the entries of a file. ValueError with the file, the entry and the reason."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a table of configurations: {error}") from error
    if not isinstance(plain, dict) or plain.get("schema") != _SCHEMA or not isinstance(plain.get("entries"), list):
        raise ValueError(f'{path} is not a table of configurations: expected "schema": {_SCHEMA} and a list "entries"')
    entries = []
    for number, entry in enumerate(plain["entries"]):
        try:
            entries.append(_checked(entry))
        except ValueError as error:
            raise ValueError(f"{path}, entry {number} ({_named(entry)}): {error}") from error
    return tuple(entries)


def _checked(plain: object) -> _Entry:
    if not isinstance(plain, dict) or set(plain) != set(_KEYS):
        raise ValueError(f"an entry must be an object with exactly the keys {', '.join(_KEYS)}, got {plain!r}")
    if not isinstance(plain["arch"], str) or not plain["arch"]:
        raise ValueError(f"arch must be a name such as sm_90, got {plain['arch']!r}")
    if plain["op"] not in TUNED_OPS:
        raise ValueError(f"op must be one of {', '.join(TUNED_OPS)}, got {plain['op']!r}")
    if not isinstance(plain["use_gluon"], bool):
        raise ValueError(f"use_gluon must be true or false, got {plain['use_gluon']!r}")
    for name in ("element_size", "world_size", "bytes"):
        if type(plain[name]) is not int or plain[name] <= 0:
            raise ValueError(f"{name} must be a positive integer, got {plain[name]!r}")
    if plain["measured"] is not None and not isinstance(plain["measured"], str):
        raise ValueError(f"measured must be text or null, got {plain['measured']!r}")
    _check_config(plain["op"], plain["use_gluon"], plain["config"])
    return _Entry(**{name: plain[name] for name in _KEYS if name != "measured"})


def _check_config(op: str, use_gluon: bool, chosen: object) -> None:
    if not isinstance(chosen, dict):
        raise ValueError(f"config must be an object of Config's fields, got {chosen!r}")
    known = {field.name: field.default for field in fields(Config) if field.name != "use_gluon"}
    for name, value in chosen.items():
        if name not in known:
            raise ValueError(f"config has no field {name!r}, only {', '.join(known)}")
        wanted = str if isinstance(known[name], str) else int
        if type(value) is not wanted:
            raise ValueError(f"config's {name} must be of type {wanted.__name__}, got {value!r}")
        if op == "reduce_scatter" and name in _OWNERSHIP:
            raise ValueError(f"config's {name} decides which tiles a rank of a reduce_scatter owns; remove it")
    made = Config(**chosen)
    if op == "all_gather" and use_gluon and made.all_gather_variant == "partitioned":
        raise ValueError("config's all_gather_variant cannot be 'partitioned' with use_gluon")
    if made.protocol == "ll" and _algorithm(op, made) not in LL_ALGORITHMS:
        raise ValueError(f"config's protocol 'll' is for {', '.join(LL_ALGORITHMS)}, got {_algorithm(op, made)}")
    if made.comm_sms > _MAX_PROGRAMS:
        raise ValueError(f"config's comm_sms must be {_MAX_PROGRAMS} at most, got {made.comm_sms}")
    for name in ("block_size_m", "block_size_n"):
        value = getattr(made, name)
        if value & (value - 1):
            raise ValueError(f"config's {name} must be a power of two, got {value}")


def _algorithm(op: str, config: Config) -> str:
    """Return an op and its variant, as ``LL_ALGORITHMS`` names them."""
    variant = {"all_reduce": config.all_reduce_variant, "all_gather": config.all_gather_variant}.get(op, "")
    return f"{op} {variant}".strip().removesuffix(" persistent")


def _named(entry: object) -> str:
    if not isinstance(entry, dict):
        return repr(entry)
    return " ".join(str(entry[name]) for name in ("arch", "op", "world_size", "bytes") if name in entry)


def _apart(one: int, other: int) -> float:
    return abs(math.log2(one / other))


def _active_arch() -> str:
    """ "sm_90" or "gfx942" of the device that kernels are compiled for."""
    from triton.runtime import driver

    arch = driver.active.get_current_target().arch
    return f"sm_{arch}" if isinstance(arch, int) else str(arch).split(":")[0]


def _make(arch: str) -> str:
    """ "sm_" of "sm_90", "gfx" of "gfx942"."""
    return arch[:3]
