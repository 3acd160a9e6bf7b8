"""Vector instructions that run in place: plain forms, for which NumPy ufuncs write the destination register directly.

Most executed instructions have these forms, so they avoid the temporaries and the copy of the general form in
``build``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.emulator.operations.table import Chain, Select, Shift, Step
from harness.emulator.wavefront.operands import Operand, result_key, source_key
from harness.emulator.wavefront.operands import constant as constant_value
from harness.emulator.wavefront.state import DTYPES, Wavefronts, constant_key, unpack

Pairs = list[tuple[str, Operand]]
MaybePairs = list[tuple[str, Operand | None]]


def step(function: Callable[..., Any], results: MaybePairs, sources: MaybePairs) -> Step | None:
    """Return the step of an instruction without modifiers, or None if it cannot run in place."""
    kind, target = results[0]
    if len(results) != 1 or kind not in DTYPES or DTYPES[kind].itemsize < 4 or target is None or target.space != "v":
        return None
    plain = [(t, o) for t, o in sources if o is not None and not (o.negate or o.absolute or o.sext)]
    if len(plain) < len(sources):
        return None
    if isinstance(function, Select):
        return _select(result_key(target, kind), plain)
    if any(t == "mask" for t, _ in plain):
        return None
    out = result_key(target, kind)
    if isinstance(function, np.ufunc):
        return _ufunc(function, out, [source_key(o, t, False) for t, o in plain])
    if isinstance(function, Shift):
        (count_kind, count), (value_kind, value) = plain
        by = _constant_count(count, count_kind, value_kind, 8 * DTYPES[value_kind].itemsize)
        return None if by is None else _ufunc(function.ufunc, out, [source_key(value, value_kind, False), by[1]])
    if isinstance(function, Chain):
        return _chain(function, out, plain)
    return None


def _constant_count(operand: Operand, kind: str, value_kind: str, modulo: int) -> tuple[int, int] | None:
    """Return a constant shift count modulo ``modulo`` and its key as ``value_kind``; None if it is a register."""
    if operand.space != "const":
        return None
    count = int(constant_value(operand, kind)) & (modulo - 1)
    return count, constant_key(np.array(count, DTYPES[value_kind]))


def _ufunc(function: np.ufunc, k: int, keys: list[int]) -> Step:
    if len(keys) == 2:
        a, b = keys

        def binary(wf: Wavefronts) -> None:
            view = wf.view
            if wf.exec_all:
                function(view[a], view[b], out=view[k])
            else:
                function(view[a], view[b], out=view[k], where=wf.exec_mask)

        return binary
    (a,) = keys

    def unary(wf: Wavefronts) -> None:
        view = wf.view
        if wf.exec_all:
            function(view[a], view[k])
        else:
            function(view[a], view[k], where=wf.exec_mask)

    return unary


def _chain(chain: Chain, out: int, sources: Pairs) -> Step | None:
    keys = [source_key(o, t, False) for t, o in sources]
    if chain.count:
        count_kind, count = sources[chain.count]
        by = _constant_count(count, count_kind, sources[0][0], chain.modulo)
        if by is None:
            return None
        keys[chain.count] = by[1]
        if by[0] == 0:  # nothing is shifted
            a, b, c = keys
            return _ufunc(chain.second, out, [a, c]) if chain.count == 1 else _ufunc(chain.first, out, [a, b])
    first, second = chain.first, chain.second
    a, b, c = keys

    def chained(wf: Wavefronts) -> None:
        view = wf.view
        between = first(view[a], view[b])
        if wf.exec_all:
            second(between, view[c], view[out])
        else:
            second(between, view[c], view[out], where=wf.exec_mask)

    return chained


def _select(out: int, sources: Pairs) -> Step | None:
    """Return the step of v_cndmask: copy the selected lanes, and skip the source that is the destination itself."""
    (kind, if_clear), (_, if_set), (_, mask) = sources
    if mask.space != "s":
        return None
    clear, set_, bits = (
        source_key(if_clear, kind, False),
        source_key(if_set, kind, False),
        source_key(mask, "u64", True),
    )

    def select(wf: Wavefronts) -> None:
        view = wf.view
        picked = unpack(view[bits])
        target = view[out]
        if clear != out:
            if set_ == out:
                np.copyto(target, view[clear], where=~picked if wf.exec_all else ~picked & wf.exec_mask)
                return
            if wf.exec_all:
                np.copyto(target, view[clear])
            else:
                np.copyto(target, view[clear], where=wf.exec_mask)
        np.copyto(target, view[set_], where=picked if wf.exec_all else picked & wf.exec_mask)

    return select
