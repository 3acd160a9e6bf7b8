"""Division of a run's groups into shards: deterministic, with a digest that shows whether two shards belong to one run.

A file ``shards.jsonl`` has one JSON object per line: a head, then one line for each shard.

    {"division":1,"of":2,"request":{...},"mandatory":["RMA-PUT-001[ranks=4]"],"lines":["SHA-256 of line 1", ...]}
    {"shard":1,"weight":12.5,"groups":["ATOMIC-ADD-001[ranks=4]", ...]}

The digest is the SHA-256 of the head, which has those of the other lines: a reader that wants one shard reads one line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import UsageError
from harness.evidence.lines import lines, parse

FILE = "shards.jsonl"
"""Name of the file of a division, next to the evidence of its shards."""

MANDATORY = ("HOST-INIT-001", "RMA-PUT-001")
"""Requirements whose first group runs in every shard: a shard whose machine fails both has a broken machine."""

LIMIT = 10_000
"""Shards of one run, at most."""

_FORM = 1
_LONGEST = 64 << 20
"""Bytes of a line of the file."""


@dataclass(frozen=True)
class Shard:
    """One shard of a run: number ``index``, from 1, of ``of``."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


@dataclass(frozen=True)
class Division:
    """The head of a division. ``request`` are the options of the run, ``mandatory`` the groups of every shard."""

    of: int
    request: Mapping[str, Any]
    mandatory: tuple[str, ...]
    digests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest of the plan and its division."""
        return hashlib.sha256(self._line()).hexdigest()

    def _line(self) -> bytes:
        return _line(
            {
                "division": _FORM,
                "of": self.of,
                "request": self.request,
                "mandatory": self.mandatory,
                "lines": self.digests,
            }
        )


def parse_shard(text: str) -> Shard:
    """Return the shard in a text such as "3/8". UsageError if it is not one."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})", text)
    if match is None or not int(match[1]) <= int(match[2]) <= LIMIT:
        raise UsageError(
            f"--shard: expected I/N such as 3/8, with I from 1 to N and N up to {LIMIT:,}, got {text!r:.60}"
        )
    return Shard(int(match[1]), int(match[2]))


def divided(groups: Iterable[str], of: int, weights: Mapping[str, float] | None = None) -> list[tuple[str, ...]]:
    """Return the groups of each shard: those at ``index % of`` in the order of falling weight, then of name.

    ``weights`` are seconds; a group without one has the mean of the others, or 1.
    """
    known = weights or {}
    usual = sum(known.values()) / len(known) if known else 1.0
    order = sorted(set(groups), key=lambda name: (-known.get(name, usual), name))
    return [tuple(order[start::of]) for start in range(of)]


def mandatory_of(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that run in every shard: the first of each requirement in ``MANDATORY``, else the first."""
    names = sorted(set(groups))
    chosen = (next((name for name in names if name.startswith(f"{identity}[")), None) for identity in MANDATORY)
    return tuple(name for name in chosen if name is not None) or tuple(names[:1])


def to_text(
    groups: Sequence[str], of: int, request: Mapping[str, Any], weights: Mapping[str, float] | None = None
) -> tuple[Division, str]:
    """Return the division of ``groups`` into ``of`` shards, and the file of it."""
    known = weights or {}
    parts = divided(groups, of, known)
    body = [
        _line({"shard": number, "weight": round(sum(known.get(name, 0.0) for name in part), 3), "groups": part})
        for number, part in enumerate(parts, 1)
    ]
    division = Division(of, request, mandatory_of(groups), tuple(hashlib.sha256(line).hexdigest() for line in body))
    return division, b"".join([division._line(), *body]).decode()


class DivisionFile:
    """Reader of the file of a division. UsageError, which begins with the path, for anything that is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: list[int] = []
        with self._opened() as file:
            head = self._object(self._line_in(file))
            self.division = self._checked(head)
            for _ in range(self.division.of):
                self._offsets.append(file.tell())
                self._line_in(file)

    def groups(self, index: int) -> tuple[str, ...]:
        """Return the groups of a shard, without the mandatory ones of other shards."""
        with self._opened() as file:
            file.seek(self._offsets[index - 1])
            line = self._line_in(file)
        if hashlib.sha256(line).hexdigest() != self.division.digests[index - 1]:
            raise UsageError(f"{self.path}: line {index + 1} was changed: it does not match the digest in line 1")
        names = self._object(line).get("groups")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{self.path}: line {index + 1} has no list of groups")
        return tuple(names)

    def _checked(self, head: Mapping[str, Any]) -> Division:
        of, digests, mandatory = head.get("of"), head.get("lines"), head.get("mandatory")
        texts = all(
            isinstance(given, list) and all(isinstance(each, str) for each in given) for given in (digests, mandatory)
        )
        request = head.get("request")
        right = type(of) is int and texts and isinstance(request, dict) and len(digests or ()) == of
        if head.get("division") != _FORM or not right or not 1 <= int(of or 0) <= LIMIT:
            raise UsageError(f"{self.path} is not a division into shards: its first line has another form")
        return Division(int(of or 0), request or {}, tuple(mandatory or ()), tuple(digests or ()))

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from error

    def _line_in(self, file: BinaryIO) -> bytes:
        line = file.readline(_LONGEST)
        if not line.endswith(b"\n"):
            raise UsageError(f"{self.path} is not a division into shards: it is cut off, or a line is too long")
        return line

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            return parse(line)
        except ValueError as error:
            raise UsageError(f"{self.path} is not a division into shards: a line {error}") from error


def weights_in(evidence: Path) -> dict[str, float]:
    """Return the seconds of each group in earlier evidence, which is read line by line. UsageError if it has none."""
    try:
        seconds = dict(_seconds_in(evidence))
    except OSError as error:
        raise UsageError(f"--weights: {evidence} cannot be read: {error.strerror}") from error
    if not seconds:
        raise UsageError(f"--weights: {evidence} has no record of a group with its seconds: name an evidence.jsonl")
    return seconds


def _seconds_in(evidence: Path) -> Iterator[tuple[str, float]]:
    for line in lines(evidence, follow=True):
        if line is None or b'"record":"group"' not in line:
            continue
        try:
            plain = parse(line)
        except ValueError:  # a line that was cut off: its group has no weight
            continue
        name, seconds = plain.get("group"), plain.get("seconds")
        if isinstance(name, str) and isinstance(seconds, (int, float)):
            yield name, float(seconds)


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
