"""Inputs of ranks to a reduction: values whose result is the same in any order.

Each value is a pseudo-random function of (call, member, element), so that a missing, doubled or misplaced contribution
shows. Integers use all their bits and wrap. Floats: a *sum* adds multiples of one power of two whose total fits the
significand; in a *product* one member, a different one for each element, contributes a full significand and the others
small powers of two, so that it neither overflows nor becomes subnormal; *min* and *max* compare normal numbers other
than zero. Signs vary in all.

Sums and products of 16-bit floats may also be ``wide``: exact in float32, but not in their own type. They have one
right result, the exact one rounded once, and a reduction that rounds after each step gives another one for many
elements. In a wide *sum*, of every four elements one is as above, two have a large number from one member that another
member subtracts (of two members, each contributes any significand), and the sum of the fourth does not fit the
significand. In a wide *product* three members contribute significands of eight digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.cases.dtypes import FLOATS, of_name, size_of
from harness.cases.recent import Recent

SUMS = ("sum", "product", "min", "max")
BITWISE = ("band", "bor", "bxor")
REDUCE_OPS = (*SUMS, *BITWISE)
_AS_BITS = {"sum": "bor", "max": "bor", "product": "band", "min": "band"}
"""Bitwise reductions with the same results for booleans."""

_SIGNIFICAND = {"fp16": 11, "bf16": 8, "fp32": 24, "fp64": 53}
_LOWEST, _HIGHEST = -4, 3
_PRODUCT_EXPONENTS = 12
"""Greatest distance from 0 of the sum of all members' exponents: fp16 allows 14."""

_WIDE_UNIT = 8
"""Binary digits between the units of plain and of wide addends."""

_WIDE_DIGITS = 8
"""Digits of a wide factor: the product of three has at most 24, as many as float32."""


def reduce_ops(dtype: str) -> tuple[str, ...]:
    """Return the reductions that exist for the element type ``dtype``."""
    return SUMS if dtype in FLOATS else REDUCE_OPS


@dataclass(frozen=True)
class Reduction:
    """Arguments of ``contribution`` that are the same for all members."""

    op: str
    dtype: str
    count: int
    members: int
    repetition: int
    wide: bool

    def of_member(self, member: int) -> torch.Tensor:
        """Return the contribution of ``member``."""
        return _contribution(self, member)


REDUCTIONS: Recent[Reduction] = Recent(64)
"""Those whose contributions were made in this case."""


def contribution(
    op: str, dtype: str, count: int, *, member: int, members: int, repetition: int = 0, wide: bool = False
) -> torch.Tensor:
    """Return the ``count`` elements that ``member`` of ``members`` contributes to reduction ``op`` in call
    ``repetition``.

    ``wide``: 16-bit floats are reduced in float32 and rounded once. It changes no other types and operations.
    """
    reduction = Reduction(op, dtype, count, members, repetition, wide)
    REDUCTIONS.add(reduction)
    return reduction.of_member(member)


def _contribution(reduction: Reduction, member: int) -> torch.Tensor:
    op, dtype, count, members = reduction.op, reduction.dtype, reduction.count, reduction.members
    repetition, wide = reduction.repetition, reduction.wide
    places = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        own = _mixed(places, 1 + member + members * repetition)
        if dtype == "bool":
            return torch.from_numpy(_whole(op if op in BITWISE else _AS_BITS[op], own) % np.uint64(2) == 1)
        if dtype not in FLOATS:
            whole = _whole(op, own).astype(f"uint{8 * size_of(dtype)}")
            return torch.from_numpy(whole.view(np.uint8)).view(of_name(dtype))
        common = _mixed(places, np.uint64(0x5DEECE66D) + np.uint64(repetition))
        digits = _SIGNIFICAND[dtype]
        values = (_WIDE if wide and size_of(dtype) == 2 else _FLOATS)[op](own, common, digits, member, members)
    return torch.from_numpy(values).to(of_name(dtype))


def rough(dtype: str, count: int, *, member: int) -> torch.Tensor:
    """Return floats between -2 and 2 with full significands: their sum is rounded, depending on the order."""
    bits = _mixed(np.arange(count, dtype=np.uint64), 77 + member)
    return torch.from_numpy(_between(bits, -2.0, 2.0)).to(of_name(dtype))


def _mixed(places: NDArray[np.uint64], seed: int | np.uint64) -> NDArray[np.uint64]:
    """Return 64 pseudo-random bits for each place, by splitmix64."""
    with np.errstate(over="ignore"):
        state = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = state + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)), dtype=np.uint64)


def _whole(op: str, bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return bits of integers. For "band" most are set and for "bor" few, so that the result is neither 0 nor all
    ones."""
    if op in ("band", "bor"):
        one, two = _mixed(bits, 2), _mixed(bits, 3)
        return bits | one | two if op == "band" else bits & one & two
    return bits


def _between(bits: NDArray[np.uint64], low: float, high: float) -> NDArray[np.float64]:
    return np.asarray(low + (high - low) * (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53, dtype=np.float64)


def _signs(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.asarray(1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64), dtype=np.float64)


def _significands(bits: NDArray[np.uint64], digits: int) -> NDArray[np.float64]:
    """Return significands from 1 to below 2 with ``digits`` binary digits."""
    steps = (bits % np.uint64(1 << (digits - 1))).astype(np.float64)
    return np.asarray(1.0 + steps * 2.0 ** (1 - digits), dtype=np.float64)


def _exponents(bits: NDArray[np.uint64], low: int, high: int) -> NDArray[np.float64]:
    return np.asarray(low + ((bits >> np.uint64(54)) % np.uint64(high - low + 1)).astype(np.float64), dtype=np.float64)


def _addend(own: Any, common: Any, digits: int, member: int, members: int) -> NDArray[np.float64]:
    limit = (1 << digits) // members
    whole = (own % np.uint64(2 * limit + 1)).astype(np.int64) - limit
    return np.asarray(whole * 2.0 ** _exponents(common, _LOWEST, _HIGHEST), dtype=np.float64)


def _factor(own: Any, common: Any, digits: int, member: int, members: int) -> NDArray[np.float64]:
    reach = _PRODUCT_EXPONENTS // members
    powers = 2.0 ** _exponents(own, -reach, reach)
    full = common % np.uint64(members) == member
    return np.asarray(_signs(own) * powers * np.where(full, _significands(own, digits), 1.0), dtype=np.float64)


def _wide_addend(own: Any, common: Any, digits: int, member: int, members: int) -> NDArray[np.float64]:
    plain = _addend(own, common, digits, member, members)
    # A smaller unit than that of plain addends, so that float16 can represent the large numbers.
    unit = 2.0 ** (_exponents(common, _LOWEST, _HIGHEST) - _WIDE_UNIT)
    full = _signs(own) * _significands(own, digits) * 2.0 ** (digits - 1) * unit
    kind = common % np.uint64(4)
    if members > 2:
        adds = common // np.uint64(4) % np.uint64(members)
        subtracts = (adds + np.uint64(1) + common // np.uint64(1 << 20) % np.uint64(members - 1)) % np.uint64(members)
        large = _significands(common >> np.uint64(8), digits) * 2.0 ** (2 * digits - 3) * unit
        small = plain * 2.0**-_WIDE_UNIT
        cancelling = np.where(adds == member, large, np.where(subtracts == member, -large, small))
    else:
        cancelling = full
    return np.asarray(np.where(kind == 0, plain, np.where(kind == 3, full, cancelling)), dtype=np.float64)


def _wide_factor(own: Any, common: Any, digits: int, member: int, members: int) -> NDArray[np.float64]:
    reach = _PRODUCT_EXPONENTS // members
    powers = 2.0 ** _exponents(own, -reach, reach)
    full = (common + np.uint64(member)) % np.uint64(members) < 3
    return np.asarray(_signs(own) * powers * np.where(full, _significands(own, _WIDE_DIGITS), 1.0), dtype=np.float64)


def _compared(own: Any, common: Any, digits: int, member: int, members: int) -> NDArray[np.float64]:
    return np.asarray(_signs(own) * _significands(own, digits) * 2.0 ** _exponents(own, -6, 6), dtype=np.float64)


_FLOATS: dict[str, Callable[..., NDArray[np.float64]]] = {
    "sum": _addend, "product": _factor, "min": _compared, "max": _compared,
}  # fmt: skip
_WIDE = {**_FLOATS, "sum": _wide_addend, "product": _wide_factor}
