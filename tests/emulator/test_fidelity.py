"""Fidelity of executed opcodes: launch records list what is not exact, with bound and source."""

import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.execution.records import added
from harness.emulator.operations import TABLE
from harness.emulator.operations.fidelity import GRADES, fidelity
from harness.telemetry import launches_by_kernel, merge_launches


@triton.jit
def powers(x, y, N: tl.constexpr, EXACT: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    tl.store(y + i, value * value if EXACT else tl.exp2(value))


@triton.jit
def product(x, y, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + i)
    tl.store(y + i, tl.dot(a, a))


def test_every_opcode_has_a_grade():
    for arch in emulator.ARCHS:
        rules = {name: fidelity(name.partition("@")[0], arch) for name in TABLE}
        assert {rule.grade for rule in rules.values()} == set(GRADES)
        assert all(rule.source and (rule.bound or rule.grade == "exact") for rule in rules.values())
    # The functions that test_ops_approximations compares with a tolerance.
    inexact = [
        f"v_{name}_{kind}" for name in ("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos") for kind in ("f16", "f32")
    ]
    assert {fidelity(name, "gfx942").grade for name in [*inexact, "v_rcp_f64", "v_rsq_f64"]} == {"approximate"}
    assert {fidelity(name, "gfx942").grade for name in ("v_add_f32", "v_fma_f16", "v_mfma_i32_16x16x32_i8")} == {
        "exact"
    }
    product = "v_mfma_f32_16x16x32_f16"
    assert fidelity(product, "gfx942").source != fidelity(product, "gfx950").source


def test_records_and_evidence():
    driver = emulator.activate("gfx942")
    try:
        x, y = torch.zeros(512), torch.zeros(512)
        powers[(3,)](x, y, 512, False, num_warps=2)
        [first] = driver.drain_launches()
        powers[(3,)](x, y, 512, True, num_warps=2)
        [second] = driver.drain_launches()
        halves, singles = torch.ones(32, 32, dtype=torch.float16), torch.zeros(32, 32)
        product[(1,)](halves, singles, 32, num_warps=1)
        [third] = driver.drain_launches()
    finally:
        emulator.deactivate()
    [exp] = first.inexact
    assert (exp.opcode, exp.grade, exp.bound, exp.source) == ("v_exp_f32", "approximate", "1 ulp", "CDNA3 ISA")
    assert exp.executions == 512 // 64 * 3
    assert second.inexact == []
    [product_] = third.inexact
    assert product_.opcode.startswith("v_mfma_f32_") and product_.grade == "modelled"
    assert [each.executions for each in added(first, first).inexact] == [2 * exp.executions]
    rank = launches_by_kernel([first, first, second])
    merged = merge_launches([rank, rank])
    assert merged[first.hash]["inexact"] == [{**vars(exp), "executions": 4 * exp.executions}]
    assert merged[second.hash]["inexact"] == []
