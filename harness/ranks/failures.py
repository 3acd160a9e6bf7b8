"""The exceptions of a part of a group on several nodes as plain data, and one exception for those of all parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.ranks.errors import RankCrash, RankCutOff, RankError, RankFailure, RankHang
from harness.text import message_of

GONE = "gone"
"""The kind of a part whose processes have ended since the last call."""


def plain(error: Exception, ranks: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Return the kind and the fields of an exception of ``RankGroup``, whose places are turned into ``ranks``.

    Before a part has its ranks (``ranks`` is empty) its places stay.
    """

    def of(places: Mapping[int, Any]) -> dict[int, Any]:
        return {ranks[place] if 0 <= place < len(ranks) else place: value for place, value in places.items()}

    def errors(places: Mapping[int, RankError]) -> dict[int, Any]:
        return {rank: each.to_plain() for rank, each in of(places).items()}

    fields: dict[str, Any]
    if isinstance(error, RankFailure):
        poisoned = list(of(dict.fromkeys(error.poisoned)))
        fields = {"errors": errors(error.errors), "stacks": of(error.stacks), "poisoned": poisoned}
        return "failure", {**fields, "output": of(error.output)}
    if isinstance(error, RankHang):
        waiting = list(of(dict.fromkeys(error.waiting)))
        fields = {"stacks": of(error.stacks), "waiting": waiting, "results": of(error.results)}
        return "hang", {**fields, "output": of(error.output)}
    if isinstance(error, RankCrash):
        fields = {"exits": of(error.exits), "errors": errors(error.errors), "full": error.full}
        return "crash", {**fields, "output": of(error.output)}
    if isinstance(error, RankCutOff):
        return "cut off", {"reasons": of(error.reasons), "output": of(error.output)}
    if isinstance(error, UsageError):
        return "usage", {"message": str(error)}
    if isinstance(error, HarnessError):
        return "harness", {"message": str(error)}
    return "harness", {"message": f"{type(error).__name__}: {message_of(error)}"}


def joined(parts: Mapping[str, tuple[str, Mapping[str, Any]]], deadline: float) -> Exception:
    """Return one exception for those of ``parts``: name of the node -> kind and fields, as ``plain`` returned them.

    ``parts`` are in the order in which their ranks failed. The gravest kind decides. Once the ranks of one node were
    ended, those of the others fail too, so their exceptions are left out. Raises ValueError for fields that ``plain``
    does not return.
    """
    parts = _causes(parts)
    kinds = {kind for kind, _ in parts.values()}

    def all_of(name: str, *of: str) -> dict[int, Any]:
        return {
            rank: value for kind, fields in parts.values() if kind in of for rank, value in fields.get(name, {}).items()
        }

    for kind, raised in (("usage", UsageError), ("harness", HarnessError)):
        for name, (failed, fields) in parts.items():
            if failed == kind:
                return raised(f"{name}: {fields['message']}")
    output = all_of("output", *kinds)
    errors = {rank: RankError.from_plain(rank, each) for rank, each in all_of("errors", *kinds).items()}
    if "crash" in kinds:
        full = next(
            (str(fields["full"]) for kind, fields in parts.values() if kind == "crash" and fields["full"]), None
        )
        return RankCrash(all_of("exits", "crash"), output, errors, full)
    if "cut off" in kinds:
        return RankCutOff(all_of("reasons", "cut off"), output)
    stacks = all_of("stacks", "failure", "hang")
    if "failure" in kinds:
        poisoned = [rank for kind, fields in parts.values() if kind == "failure" for rank in fields["poisoned"]]
        # The stacks of ranks that had answered before their node was ended are of no use.
        waiting = {rank for kind, fields in parts.values() if kind == "hang" for rank in fields["waiting"]}
        kept = {rank: text for rank, text in stacks.items() if rank in waiting or rank in all_of("stacks", "failure")}
        return RankFailure(errors, kept, output, tuple(sorted(poisoned)))
    if kinds != {"hang"}:
        raise ValueError(f"nodes failed with {sorted(kinds)}")
    waiting = {rank for _, fields in parts.values() for rank in fields["waiting"]}
    return RankHang(stacks, deadline, tuple(sorted(waiting)), output, all_of("results", "hang"))


def _causes(parts: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the parts without the exceptions that ranks raised after those of another node were ended."""
    kept: dict[str, tuple[str, Mapping[str, Any]]] = {}
    ended = False
    for name, (kind, fields) in parts.items():
        if not (ended and kind == "failure"):
            kept[name] = (kind, fields)
        ended = ended or kind != "failure" or bool(fields["stacks"] or fields["poisoned"])
    return kept
