"""A wrong element, a missing fence, and the word of a hang, in words: for every place that shows one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.evidence.records import Difference

NEAR = 64
"""Bytes around a word within which other signals are named: a cache line of flags."""


def in_words(difference: Difference) -> str:
    """Return a sentence about the first wrong element: where it is, whose value it holds, and whose it should hold."""
    detail = difference.detail
    place = ", ".join(filter(None, [_rank(difference), _place(difference)]))
    if detail is None:
        return f"{place}: got {difference.got!r}, expected {difference.wanted!r}"
    known = detail["wanted"]["kind"] != "unknown"
    got = origin_in_words(detail["got"], difference.got) if known else repr(difference.got)
    expected = origin_in_words(detail["wanted"], difference.wanted) if known else repr(difference.wanted)
    if detail["bytes"] and detail["got"]["kind"] in ("unknown", "ambiguous"):
        got = "another value"
    if detail["wanted"]["kind"] == "unwritten":
        expected = "memory that stays as it was"
    return f"{place}: got {got}, expected {expected}; {_count(difference)}"


def fence_in_words(lack: Mapping[str, Any]) -> str:
    """Return a sentence about a fence that a kernel lacks; see ``Group.fences``."""
    return (
        f"{lack['kernel']} lacks {lack['missing']} between {lack['other']!r} at {lack['other_source']}"
        f" and {lack['instruction']!r} at {lack['source']}"
    )


def wait_in_words(wait: Mapping[str, Any]) -> str:
    """Return sentences about a word that a rank of a hang polls, and who writes it; see ``Group.waits``."""
    bits = f"0x{wait['held']:x}"
    wanted = "" if wait["wanted"] is None else f" and is compared with 0x{wait['wanted']:x}"
    polls = (
        f"rank {wait['rank']} polls byte {wait['offset']:,} of {_memory(wait['memory'], wait['owner'])}, which holds"
        f" {bits}{wanted}, at {_innermost(wait['source'])}"
    )
    return ". ".join([polls, *_of_writers(wait)])


def _of_writers(wait: Mapping[str, Any]) -> Iterator[str]:
    writers, elsewhere, near, before = (wait.get(name, ()) for name in ("writers", "elsewhere", "near", "before"))
    memory = wait["memory"]
    if writers:
        yield f"Last written: {_signals(writers)}"
    else:
        among = f" ({wait['unknown']:,} words have unknown writers)" if wait.get("unknown") else ""
        yield f"No rank wrote it in this case{among}"
    if missing := [each for each in before if each["rank"] not in {other["rank"] for other in writers}]:
        yield f"In the last case that passed: {_signals(missing)}"
    if writers:
        return
    if elsewhere:
        yield f"At the same place of another rank's memory: {_signals(elsewhere, memory)}"
    elif near:
        yield f"Within {NEAR} bytes of it: {_signals(near, memory)}"
    if silent := wait.get("silent"):
        ranks = ("rank " if len(silent) == 1 else "ranks ") + ", ".join(map(str, silent))
        yield f"Nothing within {NEAR} bytes of that place, in the memory of any rank, was written by {ranks}"


def _signals(signals: Sequence[Mapping[str, Any]], memory: str = "") -> str:
    """Return which rank wrote what; with ``memory``, also where."""
    return "; ".join(
        f"rank {each['rank']} wrote 0x{each['value']:x}"
        + (f" to byte {each['offset']:,} of {_memory(memory, each['owner'])}" if memory else "")
        + f" by {each['instruction'].partition(' ')[0]} of {each['kernel']} at {_innermost(each['source'])}"
        for each in signals
    )


def _memory(name: str, owner: int) -> str:
    return f"the {name} of rank {owner}"


def _innermost(source: str) -> str:
    """Return the first of a chain of source lines, and the last one, which led to it."""
    lines = [part.strip() for part in source.split(" @ ") if part.strip()]
    return f"{lines[0]} (called at {lines[-1]})" if len(lines) > 1 else (lines or ["an unknown line"])[0]


def origin_in_words(origin: Mapping[str, Any], value: object) -> str:
    """Return whose ``value`` an element holds; see ``Difference.detail``."""
    kind = origin["kind"]
    if kind == "payload" and "element" in origin:
        more = [f"{name} {origin[name]}" for name in ("round", "call") if origin.get(name)]
        places = origin.get("candidates", 1)
        more += [f"one of {places} places with these bits"] if places > 1 else []
        return f"rank {origin.get('rank')}'s element {origin['element']}" + (f" ({', '.join(more)})" if more else "")
    if kind == "unwritten":
        return "memory that was never written"
    if kind == "reduction":
        parts = {"without": "the result without member {}'s part", "twice": "the result with member {}'s part twice"}
        return next((text.format(origin[name]) for name, text in parts.items() if name in origin), "the whole result")
    if kind == "ambiguous":
        return f"{value!r}, whose origin is ambiguous"
    return "zero" if kind == "zero" else f"{value!r}, which no rank sent"


def _rank(difference: Difference) -> str:
    return "" if difference.rank is None else f"rank {difference.rank}"


def _place(difference: Difference) -> str:
    detail, index = difference.detail, difference.index
    if detail is None or not detail["region"]:
        return difference.what if index is None else f"{difference.what}, index {index}"
    where = {"masked": ", which the mask switches off", "before": ", before its start", "after": ", past its end"}
    return f"{detail['region']}, element {detail['element']}{where.get(detail['place'], '')}"


def _count(difference: Difference) -> str:
    detail = difference.detail or {}
    if detail["bytes"]:
        return f"{detail['wrong']:,} bytes that nothing may write have changed"
    return f"{detail['wrong']:,} of {detail['of']:,} elements are wrong"
