"""A wrong element, and a missing fence, in words: for every place that shows one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.evidence.records import Difference


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
