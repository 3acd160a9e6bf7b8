"""Compiled runs against the interpreter: the same registers, bit for bit, but for the payload of a NaN.

Both execute the same op functions (on symbolic and on NumPy arrays), so what is tested here is the lowering of NumPy
operations to LLVM, the registers, and masks.
"""

import itertools
import random

import numpy as np
import pytest
from llvmlite import ir

from harness.emulator.allocations import Allocations
from harness.emulator.compiled import objects, runs, ufuncs
from harness.emulator.launch import Launch
from harness.emulator.ops import TABLE
from harness.emulator.ops.table import Op
from harness.emulator.state import EXEC
from tests.emulator import edges
from tests.emulator.single import program

WAVES = 8
# One wavefront with no active lane, one with all; the others with some.
MASKS = [0, (1 << 64) - 1, 0xAAAA5555F00FA5C3, 1, 1 << 63, 0xFFFF, 0x00FF00FF00FF00FF, (1 << 64) - 2]
_names = (f"test_{n}" for n in itertools.count())


def ops():
    return {n: op for n, op in TABLE.items() if isinstance(op, Op) and not n.endswith("@gfx950")}


def instruction(op):
    """The instruction's text, with results in registers 50.., sources in 2, 4, 6, masks in s[42:43]."""
    operands, sources = [], iter((2, 4, 6))
    space = "v" if op.klass == "valu" else "s"
    for position, kind in enumerate(op.results + op.sources):
        is_result = position < len(op.results)
        if kind in ("scc", "exec", "vcc") or kind[0] == "@":
            continue
        if kind == "mask":
            operands.append("s[40:41]" if is_result else "s[42:43]")
        elif kind in ("imm", "uimm"):
            operands.append("0x8765")
        else:
            register = 50 if is_result else next(sources)
            wide = kind.endswith("64") or (op.packed and kind.endswith("32"))
            operands.append(f"{space}[{register}:{register + 1}]" if wide else f"{space}{register}")
    return f"{op.name.partition('@')[0]} {', '.join(operands)}"


def wavefronts(code, masks):
    launch = Launch(code, (1, 1, 1), len(masks), 0, np.zeros(8, np.uint8), Allocations())
    wf = launch.start(0, 1).wavefronts
    wf.s[:, EXEC : EXEC + 2] = np.array(masks, np.uint64).view(np.uint32).reshape(-1, 2)
    wf.refresh_exec()
    return wf


def fill(wf, op, seed):
    """Random registers; in those of the operands edge values, one combination a lane or, for scalars, a wavefront."""
    some = np.random.default_rng(seed)
    wf.v[:] = some.integers(0, 1 << 32, wf.v.shape, np.uint32)
    wf.s[:, :EXEC] = some.integers(0, 1 << 32, (len(wf), EXEC), np.uint32)
    wf.scc[:] = some.integers(0, 2, len(wf))
    kinds = [k.lstrip("@") for k in op.sources]
    cases = edges.combinations([k if k not in ("exec", "uimm") else "u64" for k in kinds], op.name)
    random.Random(op.name).shuffle(cases)
    count = len(wf) if op.klass == "salu" else wf.v[0, :, :, 0].size
    cases = (cases * count)[:count]
    sources = iter((2, 4, 6))
    for position, kind in enumerate(op.sources):
        if kind in ("scc", "exec", "vcc", "mask", "imm", "uimm"):
            continue
        register = 50 if kind[0] == "@" else next(sources)
        column = np.array([case[position] for case in cases], np.uint64)
        for half in range(2 if kind.endswith("64") else 1):
            words = (column >> np.uint64(32 * half)).astype(np.uint32)
            if op.klass == "salu":
                wf.s[:, register + half] = words
            else:
                target = wf.v[register >> 1, :, :, half]
                target[...] = words.reshape(target.shape)
    return wf


def interpret(steps, wf):
    with np.errstate(all="ignore"):
        for step in steps:
            step(wf)


def compiled(steps):
    """The steps as machine code, and how many of them are."""
    name, module = next(_names), ir.Module()
    pieces = runs.lower(steps, module, f"{name}_0")
    compiler = runs.Compiler(None)
    compiler._name = lambda: name
    compiler.runs.append(runs.Run(steps, [], compiler))
    compiler._install([[*pieces]], objects.compile_module(module))
    return compiler.runs[0], sum(last - first for first, last, _ in pieces)


def differences(kinds, wanted, got):
    """Where registers differ; ``kinds`` says which vector registers hold floats, whose NaNs are all alike."""
    where = []
    for name in ("s", "scc", "exec_mask"):
        where += [(name, *i) for i in np.argwhere(getattr(wanted, name) != getattr(got, name))]
    for register in range(2 * len(wanted.v)):
        a, b = (w.v[register >> 1, :, :, register & 1] for w in (wanted, got))
        kind = kinds.get(register & ~1)
        different = a != b
        if kind == "f64":
            x, y = (w.v[register >> 1].view(np.float64)[:, :, 0] for w in (wanted, got))
            different &= ~(np.isnan(x) & np.isnan(y))
        elif kind == "f32":
            x, y = (np.ascontiguousarray(part).view(np.float32) for part in (a, b))
            different &= ~(np.isnan(x) & np.isnan(y))
        elif kind == "f16":
            x, y = (np.ascontiguousarray(part).view(np.float16).reshape(*a.shape, 2) for part in (a, b))
            words = [np.ascontiguousarray(part).view(np.uint16).reshape(*a.shape, 2) for part in (a, b)]
            different = ((words[0] != words[1]) & ~(np.isnan(x) & np.isnan(y))).any(axis=2)
        where += [(f"v{register}", *i, hex(a[tuple(i)]), hex(b[tuple(i)])) for i in np.argwhere(different)]
    return where


def compare(op, masks):
    """None when the op is not compiled, else where the two executions differ."""
    code = program(instruction(op))
    (steps,) = [segment.steps for block in code.blocks for segment in block.segments]
    wanted, got = (fill(wavefronts(code, masks), op, 7) for _ in range(2))
    run, count = compiled(steps)
    if not count:
        return None
    interpret(steps, wanted)
    run(got)
    kind = "f16" if op.name.endswith("_f16_f32") else op.results[0]
    return differences({50: kind}, wanted, got)


@pytest.mark.parametrize("name", sorted(ops()))
def test_opcode(name):
    for masks in (MASKS, [(1 << 64) - 1] * WAVES):
        assert not compare(ops()[name], masks)


def test_most_opcodes_have_a_compiled_form():
    """Transcendental functions stay with the host's library, bit reversals with NumPy's unpackbits."""
    interpreted = []
    for name, op in ops().items():
        steps = program(instruction(op)).blocks[0].segments[0].steps
        interpreted += [name] * (not runs.lower(steps, ir.Module(), "unused"))
    assert len(interpreted) < 0.1 * len(ops()), interpreted
    assert not [
        n for n in interpreted if n.startswith(("s_a", "s_cmp", "v_cmp", "v_cndmask", "v_add", "v_mul", "v_fma"))
    ]


@pytest.mark.parametrize(
    ("ufunc", "wrong", "op"),
    [
        (np.add, np.subtract, "v_add_u32"),
        (np.right_shift, np.left_shift, "v_ashrrev_i32"),
        (np.less, np.less_equal, "v_cmp_lt_f32"),
        (np.fmin, np.fmax, "v_min_f32"),
        (np.isnan, np.isinf, "v_max_f64"),
    ],
)
def test_a_wrong_lowering_is_found(monkeypatch, ufunc, wrong, op):
    monkeypatch.setitem(ufuncs.LOWERINGS, ufunc, ufuncs.LOWERINGS[wrong])
    assert compare(ops()[op], MASKS)
