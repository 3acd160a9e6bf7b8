"""Every vector ALU opcode of the table against its semantics: edge values, all lanes and half of them active."""

import math

import pytest

from harness.emulator.operations import TABLE
from tests.emulator import edges, semantics_float, semantics_media, semantics_vector  # noqa: F401 - they fill SEMANTICS
from tests.emulator.ieee import FORMATS
from tests.emulator.semantics import BITS, SEMANTICS
from tests.emulator.single import execute

HALF = 0xAAAA5555F00FA5C3
OLD = 0xDEAD4BAD


def vector_names():
    return sorted(
        n for n, op in TABLE.items() if n in SEMANTICS and op.klass == "valu" and not getattr(op, "packed", False)
    )


def instruction(name, semantics):
    """Return the text, with the result in v[0:1], s[40:41], sources in v[2:3], v[4:5], v[6:7], masks in s[42:43]."""
    operands, registers = [], iter((2, 4, 6))
    for kind in semantics.results:
        if kind != "exec":
            operands.append("s[40:41]" if kind == "mask" else "v[0:1]" if BITS.get(kind) == 64 else "v0")
    for kind in semantics.sources:
        if kind == "mask":
            operands.append("s[42:43]")
        elif kind[0] != "@" and kind != "vcc":
            register = next(registers)
            operands.append(f"v[{register}:{register + 1}]" if BITS[kind] == 64 else f"v{register}")
    return f"{name} {', '.join(operands)}"


def run(name, semantics, cases, exec_mask):
    """Run one case per lane; return the registers after the run."""
    waves = len(cases) // 64
    v, s = {0: OLD, 1: OLD + 1}, {40: 0xFFFFFFFF, 41: 0xFFFFFFFF}
    registers = iter((2, 4, 6))
    for i, kind in enumerate(semantics.sources):
        column = [case[i] for case in cases]
        if kind in ("mask", "vcc"):
            masks = [sum(bit << lane for lane, bit in enumerate(column[64 * w : 64 * w + 64])) for w in range(waves)]
            low, high = (42, 43) if kind == "mask" else (106, 107)
            s[low], s[high] = [m & 0xFFFFFFFF for m in masks], [m >> 32 for m in masks]
            continue
        register = 0 if kind[0] == "@" else next(registers)
        v[register] = [word & 0xFFFFFFFF for word in column]
        if BITS[kind.lstrip("@")] == 64:
            v[register + 1] = [word >> 32 for word in column]
        elif BITS[kind.lstrip("@")] == 16:
            # The upper half of a 16-bit source must have no effect.
            v[register] = [word | (OLD if register else 0) & 0xFFFF0000 for word in column]
    return execute(instruction(name, semantics), v=v, s=s, vcc=None, exec=exec_mask, waves=waves)


def same(kind, got, wanted, semantics):
    if kind == "f16x2":
        return all(same("f16", got >> n & 0xFFFF, wanted >> n & 0xFFFF, semantics) for n in (0, 16))
    f = FORMATS.get(kind)
    if f is None or got == wanted:
        return got == wanted
    if f.is_nan(wanted):
        return f.is_nan(got) and not semantics.exact_nan
    return not f.is_nan(got) and f.ulps(got, wanted) <= semantics.ulps


@pytest.mark.parametrize("name", vector_names())
def test_opcode(name):
    semantics = SEMANTICS[name]
    cases = edges.combinations([k.lstrip("@") for k in semantics.sources], name)
    cases += cases[: -len(cases) % 64]
    cases = (cases * 64)[: math.ceil(len(cases) / 64) * 64]
    for exec_mask in ((1 << 64) - 1, HALF):
        result = run(name, semantics, cases, exec_mask)
        for position, kind in enumerate(semantics.results):
            wanted = [semantics.function(*case) for case in cases]
            if len(semantics.results) > 1:
                wanted = [w[position] for w in wanted]
            if kind in ("mask", "exec"):
                check_mask(name, result.s64(40) if kind == "mask" else result.exec, wanted, cases, exec_mask)
            else:
                check_lanes(name, semantics, kind, result, wanted, cases, exec_mask)


def check_mask(name, got, wanted, cases, exec_mask):
    for wave, mask in enumerate(got):
        bits = wanted[64 * wave : 64 * wave + 64]
        for lane, bit in enumerate(bits):
            expected = bool(bit) and bool(exec_mask >> lane & 1)
            assert bool(mask >> lane & 1) == expected, (
                f"{name}{tuple(map(hex, cases[64 * wave + lane]))}: bit is not {expected}"
            )


def check_lanes(name, semantics, kind, result, wanted, cases, exec_mask):
    wide = BITS.get(kind) == 64
    after = result.v64(0) if wide else result.v(0)
    for lane, (got, value, case) in enumerate(zip(after, wanted, cases, strict=True)):
        reads_old = [c for c, k in zip(case, semantics.sources, strict=True) if k[0] == "@"]
        before = reads_old[0] if reads_old else OLD | OLD + 1 << 32 if wide else OLD
        if not exec_mask >> lane % 64 & 1:
            assert got == before, f"{name}: lane {lane} is inactive and was written"
            continue
        if BITS.get(kind) == 16:
            upper = before >> 16 if semantics.keeps_high else 0
            assert got >> 16 == upper, f"{name}{tuple(map(hex, case))}: upper half {got >> 16:#x}, not {upper:#x}"
            got &= 0xFFFF
        assert same(kind, got, value, semantics), f"{name}{tuple(map(hex, case))}: {got:#x}, not {value:#x}"
