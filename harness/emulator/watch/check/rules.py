"""Which bits of a result are undefined, given those of the sources.

The rules are memcheck's (Seward and Nethercote, "Using Valgrind to detect undefined value errors with bit-precision",
USENIX 2005), for the ops of ``ops.table``:

exact   bitwise logic, shifts, bit fields, packs and selections: each result bit is looked at by itself, by executing
        the op on both values of every undefined bit. An undefined shift count or selector makes everything undefined.
upward  sums and products of integers: everything from the lowest undefined bit on
all     the rest: one undefined bit makes the whole result undefined
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from harness.emulator.ops.table import Op, Select
from harness.emulator.state import DTYPES

# Undefined bits by source (unsigned, or bool for a lane mask and SCC) and the sources' values -> undefined bits by
# result.
Arrays = Sequence[np.ndarray]
Rule = Callable[[Arrays, Arrays], list[np.ndarray]]

UNSIGNED = {"f32": "u32", "i32": "u32", "f64": "u64", "i64": "u64", "f16": "u16", "i16": "u16", "hf16": "h16",
            "hi16": "h16", "imm": "u32", "uimm": "u32"}  # fmt: skip
_BOOLEAN = ("mask", "exec", "scc", "vcc")

_BITWISE = re.compile(
    r"[sv]_(and|or|xor|xnor|not|nand|nor|andn2|orn2|and_or|or3|bfi|bitop3)_b(16|32|64)|s_\w+_saveexec_b64"
)
# Ops that move bits, and which of their sources say where to.
_MOVES = {
    r"[sv]_mov_b(32|64)|s_movk_i32|v_accvgpr_\w+|v_bfrev_b32|s_brev_b(32|64)|v_pack_b32_f16|s_pack_.*|s_sext_.*": (),
    r"v_(pk_)?(lshl|lshr|ashr)rev_[bi](16|32|64)": (0,),
    r"s_(lshl|lshr|ashr)_[bi](32|64)|v_lshl_or_b32|s_bfe_.*|s_bitcmp[01]_.*": (1,),
    r"v_bfe_[ui]32": (1, 2),
    r"v_alignbit_b32|v_alignbyte_b32|v_perm_b32|s_cselect_.*|s_cmov_.*|s_cmovk_i32": (2,),
}
_UPWARD = re.compile(
    r"v_(pk_)?(add|sub|subrev|mul_lo|mad)_[ui](16|32)|v_(add|sub|subrev|addc|subb|subbrev)_co_u32|v_add3_u32|v_xad_u32"
    r"|v_(lshl_add|add_lshl)_u(32|64)|v_mul_(i32_i|u32_u)24|v_mad_[iu](32|64)_[iu](16|24|32)"
    r"|s_(add|sub|addc|subb|addk|mulk|mul|lshl[1-4]_add)_[iu]32"
)
_EQUALITY = re.compile(r"v_cmpx?_(eq|ne)_[ui]\d+|s_cmpk?_(eq|lg)_[ui]\d+")
_HALVES = re.compile(r"v_cvt_pk(rtz)?_(u16|i16|f16|bf16)_\w+")


def rule_of(op: Op, modified: bool) -> Rule:
    """The rule of an op; ``modified``: clamp or omod changes its result."""
    name = op.name.partition("@")[0]
    if match := re.fullmatch(r"v_cvt_f32_ubyte([0-3])", name):
        byte = np.uint32(0xFF << 8 * int(match.group(1)))
        return lambda bits, values: [_whole(bits[0] & byte != 0, "u32")]
    if modified or any(t.lstrip("@")[0] == "f" for t in (*op.results, *op.sources)):
        return _halves if _HALVES.fullmatch(name) else _all(op.results)
    if isinstance(op.function, Select):
        return _select
    if _BITWISE.fullmatch(name):
        return _exact(op, (), every=True)
    for names, control in _MOVES.items():
        if re.fullmatch(names, name):
            return _exact(op, control, every=False)
    if _UPWARD.fullmatch(name):
        return _upward(op, name)
    if _EQUALITY.fullmatch(name):
        return _equality(op.results)
    if _HALVES.fullmatch(name):
        return _halves
    return _all(op.results)


def anything(bits: Arrays) -> np.ndarray:
    """Where any source has an undefined bit."""
    bad: Any = np.False_
    for each in bits:
        bad = bad | (each != 0)
    return np.asarray(bad)


def _all(kinds: Sequence[str]) -> Rule:
    return lambda bits, values: [_whole(anything(bits), kind) for kind in kinds]


def _whole(bad: np.ndarray, kind: str) -> np.ndarray:
    if kind in _BOOLEAN:
        return bad
    dtype = DTYPES[UNSIGNED.get(kind, kind)]
    words: np.ndarray = np.where(bad, ~dtype.type(0), dtype.type(0))
    return words


def _exact(op: Op, control: tuple[int, ...], every: bool) -> Rule:
    """``every``: an undefined bit of one source may cancel that of another, so all combinations are tried; else the
    result is monotone in the sources, and trying all 0 and all 1 is enough."""
    main = next(i for i, kind in enumerate(op.results) if i == len(op.results) - 1 or op.results[i + 1] == "scc")
    saves_exec = "exec" in op.results

    def outcomes(values: Arrays) -> Any:
        result = op.function(*values)
        return result[main] if len(op.results) > 1 else result

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        pairs = []
        for i, (undefined, value) in enumerate(zip(bits, values, strict=True)):
            if i in control or not undefined.any():
                pairs.append((value, value))
            else:
                same = undefined if value.dtype == np.bool_ else undefined.view(value.dtype)
                pairs.append((value & ~same, value | same))
        low = outcomes([pair[0] for pair in pairs])
        bad = np.zeros_like(_unsigned(low))
        choices = [pair if pair[0] is not pair[1] else pair[:1] for pair in pairs]
        for choice in product(*choices) if every else [[pair[1] for pair in pairs]]:
            bad = bad | _unsigned(outcomes(choice)) ^ _unsigned(low)
        for i in control:
            bad = np.where(bits[i] != 0, ~bad.dtype.type(0) if bad.dtype != np.bool_ else np.True_, bad)
        found: list[np.ndarray] = []
        for i, kind in enumerate(op.results):
            if i == main:
                found.append(bad)
            elif kind == "scc":
                # Is the result not zero? That is decided by any bit known to be 1.
                found.append((bad != 0) & (_unsigned(low) & ~bad == 0))
            else:
                found.append(np.zeros_like(bad) if saves_exec else bad)
        return found

    return rule


def _unsigned(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array if array.dtype == np.bool_ else array.view(f"u{array.dtype.itemsize}")


def _upward(op: Op, name: str) -> Rule:
    kind = UNSIGNED.get(op.results[0], op.results[0])
    word = DTYPES[kind].type
    modulo = word(getattr(op.function, "modulo", 32) - 1)
    shift_first = int(match.group(1)) if (match := re.match(r"s_lshl([1-4])_add", name)) else 0

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        wide = [np.asarray(each).astype(word) for each in bits]
        if name.endswith("24"):
            wide[:2] = [each & word(0xFFFFFF) for each in wide[:2]]
        after = None
        if shift_first:
            wide[0] = wide[0] << word(shift_first)
        elif name.startswith("v_lshl_add"):
            wide[0] = wide[0] << (values[1].astype(word) & modulo)
        elif name.startswith("v_add_lshl"):
            after = values[2].astype(word) & modulo
        joined = wide[0]
        for each in wide[1:]:
            joined = joined | each
        bad = joined | (~joined + word(1))
        if after is not None:
            bad = np.where(bits[2] != 0, ~word(0), (bad & ~word(0)) << after)
        elif name.startswith("v_lshl_add"):
            bad = np.where(bits[1] != 0, ~word(0), bad)
        return [bad, *[_whole(anything(bits), other) for other in op.results[1:]]]

    return rule


def _select(bits: Arrays, values: Arrays) -> list[np.ndarray]:
    """An undefined choice matters where the two sides differ."""
    clear, chosen, mask = bits
    either = clear | chosen | (values[0] ^ values[1])
    return [np.where(mask, either, np.where(values[2], chosen, clear))]


def _equality(kinds: Sequence[str]) -> Rule:
    """Values are unequal as soon as one defined bit differs."""

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        undefined = bits[0] | bits[1].view(bits[0].dtype)
        differ = (_unsigned(values[0]) ^ _unsigned(values[1])) & ~undefined
        bad = (undefined != 0) & (differ == 0)
        return [bad for _ in kinds]

    return rule


def _halves(bits: Arrays, values: Arrays) -> list[np.ndarray]:
    """The low half comes from the first source, the high half from the second; MODE may follow them."""
    low, high = (np.where(each != 0, np.uint32(0xFFFF), np.uint32(0)) for each in bits[:2])
    return [low | high << np.uint32(16)]
