"""Arguments that fused products refuse on every rank before any data moves. After a refusal a valid call still works.

001  Refused with ValueError, with and without async_op: tensors that are not matrices; shapes, element types or devices
     that do not match; a matrix that torch negates lazily; a bias of the wrong length; an output whose elements share
     memory with each other or with an input; a tensor outside the heap that other ranks access; an invalid
     configuration. AssertionError is accepted too if the API states it.
002  If only one rank passes a wrong argument, another configuration than the others, or a workspace that is not
     prepared, every rank gets an error.
"""

from dataclasses import replace

import torch

from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, judge, perform, prepare, wanted_of
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run_refused(env, case):
    findings, product = Findings(env.rank), prepare(env, case)
    env.settle()
    right = config(env, case)

    def attempt(tensors, settings, asynchronous):
        changed = replace(product, tensors={**product.tensors, **tensors})
        return invoke(replace(case, async_op=asynchronous), changed, settings, None, env.iris.ops)

    for label, kind, tensors, settings in [*_wrong_tensors(case, product.tensors), *_wrong_settings(env, case)]:
        for asynchronous in (False, True):
            findings.raises(
                f"{label}{' with async_op' * asynchronous}",
                kind,
                lambda t=tensors, s=settings, a=asynchronous: attempt(t, s or right, a),
            )
    return _and_then(env, case, product, findings)


def _wrong_tensors(case, tensors):
    """Yield (label, expected exception, replaced tensors, None)."""
    op = PRODUCTS[case.op]
    for name in ("a", "b", "c"):
        matrix = tensors[name]
        yield f"{name} of one dimension", ValueError, {name: matrix.flatten()}, None
        yield f"{name} without its last row", ValueError, {name: matrix[:-1]}, None
        yield f"{name} without its last column", op.short_columns, {name: matrix[:, :-1]}, None
        yield f"another element type of {name}", ValueError, {name: matrix.view(torch.bfloat16)}, None
        yield f"{name} that torch negates lazily", ValueError, {name: torch._neg_view(matrix)}, None
    integers = {name: tensor.view(torch.int16) for name, tensor in tensors.items()}
    yield "integer matrices", ValueError, integers, None
    yield "a bias without its last element", ValueError, {"bias": tensors["bias"][:-1]}, None
    output, (rows, columns) = tensors["c"], tensors["a"].shape
    for label, strides in (("are the same memory", (0, 1)), ("overlap", (4, 1))):
        yield f"an output whose rows {label}", ValueError, {"c": output.as_strided(output.shape, strides)}, None
    yield "a first matrix within the output", ValueError, {"a": output[:rows, :columns]}, None
    yield "a bias within the output", ValueError, {"bias": output[:rows, 0]}, None
    if op.reached:
        yield "a tensor outside the heap", ValueError, {op.reached: torch.empty_like(tensors[op.reached])}, None


def _wrong_settings(env, case):
    """Yield (label, expected exception, no tensors, wrong FusedConfig)."""
    right = config(env, case)
    wrong = [("block_size_m", 24), ("block_size_n", 8), ("block_size_k", -16), ("block_size_m", 1 << 20)]
    wrong += [("num_sms", 0), ("chunk_size", 0), *PRODUCTS[case.op].wrong_settings]
    for field, value in wrong:
        yield f"{field}={value!r}", ValueError, {}, env.under_test.changed(right, **{field: value})


def run_alone(env, case):
    findings, product = Findings(env.rank), prepare(env, case)
    env.settle()
    right, last = config(env, case), env.rank == env.world_size - 1
    short = replace(product, tensors={**product.tensors, "c": product.tensors["c"][:-1]})
    findings.raises(
        "a matrix without its last row, on this rank only" if last else "a valid call while another rank's is wrong",
        ValueError if last else RuntimeError,
        lambda: invoke(case, short if last else product, right, None, env.iris.ops),
    )
    other = env.under_test.changed(right, block_size_k=32) if last else right
    findings.raises(
        "ranks that pass different blocks",
        ValueError,
        lambda: invoke(case, product, other, None, env.iris.ops),
        says="block_size_k=32",
    )
    preamble = getattr(env.iris.ops, f"{case.op}_preamble")
    given = short if last else product
    findings.raises(
        "a preamble with a matrix without its last row on one rank",
        ValueError if last else RuntimeError,
        lambda: preamble(*(given.tensors[name] for name in "cab"), config=right),
    )
    matrices, fresh = [product.tensors[name] for name in "cab"], env.under_test.module.ops.FusedWorkspace()
    workspace = preamble(*matrices, config=right)
    for label in ("fresh", "reset"):
        passed = fresh if last and label == "fresh" else workspace
        if last and label == "reset":
            workspace.reset()
        acts = {
            "product": lambda w=passed: invoke(case, product, right, w, env.iris.ops),
            "preamble": lambda w=passed: preamble(*matrices, config=right, workspace=w),
        }
        for name, act in acts.items():
            findings.raises(f"a {name} with a workspace that is {label} on one rank", ValueError, act)
    workspace.clear()
    return _and_then(env, case, product, findings)


def _and_then(env, case, product, findings):
    """Check that the heap is unchanged and that a valid call gives its result."""
    given = [inputs_of(env, case, product, 0)]
    wanted = [wanted_of(env, case, product, given[0])]
    env.settle()
    findings.first = findings.first or env.image.difference()
    env.settle()
    outputs = perform(env, case, product, given, findings)
    env.settle()
    return judge(env, case, product, given, wanted, outputs, findings)


def cases(ranks, op):
    # The same compiled kernel as most drawn cases of odd sizes.
    return [FusedCase(op=op, m=20, n=33, k=23, biased=True, pad=3)]


@requirement("FUSED-REFUSED-001", cases=cases, op=tuple(PRODUCTS), weak=False)
def test_refused(check, case):
    check(run_refused, case)


@requirement("FUSED-REFUSED-002", cases=cases, ranks=2, op=tuple(PRODUCTS), weak=False)
def test_refused_on_one_rank(check, case):
    check(run_alone, case)
