"""A picture of the wrong elements of a region, as text."""

from __future__ import annotations

from harness.evidence import Difference

_SIGNS = 64
RIGHT, WRONG, UNLISTED = "\N{MIDDLE DOT}", "\N{MULTIPLICATION SIGN}", "?"


def picture_of(difference: Difference | None) -> str:
    """Return two lines, or "" without details: one sign for each element of the region, or for several of them.

    Elements outside of the region have negative numbers or numbers from its length on; a bar marks its start. After
    the runs of wrong elements that the evidence lists, the signs are question marks.
    """
    if difference is None or difference.detail is None or not difference.detail["runs"]:
        return ""
    detail = difference.detail
    runs = [(int(first), int(end)) for first, end in detail["runs"]]
    outside = detail["bytes"]
    first = min(0, runs[0][0]) if detail["region"] else runs[0][0]
    near = [end for start, end in runs if start < runs[0][0] + 4 * _SIGNS] if outside else []
    last = max(near) if outside else max(int(detail["of"]), runs[-1][1])
    if last - first < 2:
        return ""
    step = -(-(last - first) // _SIGNS)
    complete = outside or sum(end - start for start, end in runs) >= detail["wrong"]
    signs = [_sign(runs, start, start + step, complete=complete) for start in range(first, last, step)]
    unit = "element" if detail["region"] else "byte"
    each = f"each sign is one {unit}" if step == 1 else f"each sign is {step} {unit}s"
    where = f"rank {difference.rank}, {detail['region'] or 'the arena'}"
    return f"{where}, {unit}s {first} to {last - 1}; {each}\n{''.join(signs)}"


def _sign(runs: list[tuple[int, int]], start: int, end: int, *, complete: bool) -> str:
    if any(first < end and start < last for first, last in runs):
        return WRONG
    return RIGHT if complete or end <= runs[-1][1] else UNLISTED
