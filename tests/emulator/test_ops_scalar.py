"""Every scalar ALU opcode of the table against its semantics; each case is a wavefront."""

import pytest

from harness.emulator.operations import TABLE
from tests.emulator import edges, semantics_scalar  # noqa: F401 - it fills SEMANTICS
from tests.emulator.semantics import BITS, SEMANTICS
from tests.emulator.single import execute

IMMEDIATES = (0, 1, 5, 0x7FFF, 0x8000, 0xFFFF)


def scalar_names():
    return sorted(n for n, op in TABLE.items() if n in SEMANTICS and op.klass == "salu")


def text(name, semantics, immediate):
    operands, registers = [], iter((42, 44, 46))
    for kind in semantics.results:
        if kind in BITS:
            operands.append("s[40:41]" if BITS[kind] == 64 else "s40")
    for kind in semantics.sources:
        if kind == "imm":
            operands.append(hex(immediate))
        elif kind in BITS:
            register = next(registers)
            operands.append(f"s[{register}:{register + 1}]" if BITS[kind] == 64 else f"s{register}")
    return f"{name} {', '.join(operands)}"


@pytest.mark.parametrize("name", scalar_names())
def test_opcode(name):
    semantics = SEMANTICS[name]
    for immediate in IMMEDIATES if "imm" in semantics.sources else (0,):
        kinds = ["u64" if k == "exec" else k.lstrip("@") for k in semantics.sources]
        cases = edges.combinations([k for k in kinds if k != "imm"], name, limit=256)
        cases = [tuple(immediate if k == "imm" else rest.pop(0) for k in kinds) for rest in map(list, cases)]
        s, scc, registers = {}, None, iter((42, 44, 46))
        for i, kind in enumerate(semantics.sources):
            column = [case[i] for case in cases]
            if kind == "scc":
                scc = column
            elif kind != "imm":
                register = 126 if kind == "exec" else 40 if kind[0] == "@" else next(registers)
                s[register], s[register + 1] = [w & 0xFFFFFFFF for w in column], [w >> 32 for w in column]
        result = execute(text(name, semantics, immediate), s=s, scc=scc, exec=None, waves=len(cases))
        for position, kind in enumerate(semantics.results):
            wanted = [semantics.function(*case) for case in cases]
            if len(semantics.results) > 1:
                wanted = [w[position] for w in wanted]
            got = (
                result.scc
                if kind == "scc"
                else result.exec
                if kind == "exec"
                else result.s64(40)
                if BITS[kind] == 64
                else result.s(40)
            )
            for case, g, w in zip(cases, got, wanted, strict=True):
                assert g == w, f"{name}{tuple(map(hex, case))}: {kind} {g:#x}, not {w:#x}"
