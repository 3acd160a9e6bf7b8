"""What fused products refuse, on every rank, before anything moves; behind it a right call gives its result.

001  Matrices that are none, or whose shapes, element types or devices do not fit; a bias of another length; outputs
     whose elements share memory, with one another or with an input; tensors off the heap that members reach for;
     configurations that do not hold. ValueError, with async_op and without; where the API says AssertionError, that
     too.
002  Where one rank alone is wrong, or passes another configuration than the others, every rank gets an error.
"""

from dataclasses import replace

import torch

from conformance.ops.products import config, inputs_of, invoke, judge, perform, prepare, wanted_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import FusedCase

OPS = ("matmul_all_reduce", "all_gather_matmul", "matmul_all_gather", "matmul_reduce_scatter")
REACHED = {"matmul_all_reduce": "c", "all_gather_matmul": "a", "matmul_all_gather": "c"}
"""The tensor that members reach."""


def run_refused(env, case):
    found, product = Findings(env.rank), prepare(env, case)
    env.settle()
    right = config(env, case)

    def attempt(tensors, settings, asynchronous):
        changed = replace(product, tensors={**product.tensors, **tensors})
        return invoke(replace(case, async_op=asynchronous), changed, settings, None, env.iris.ops)

    for what, kind, tensors, settings in [*_wrong_tensors(case, product.tensors), *_wrong_settings(env, case)]:
        for asynchronous in (False, True):
            found.raises(
                f"{what}{' with async_op' * asynchronous}",
                kind,
                lambda t=tensors, s=settings, a=asynchronous: attempt(t, s or right, a),
            )
    return _and_then(env, case, product, found)


def _wrong_tensors(case, tensors):
    """(what, the exception, the tensors in their place, None)."""
    asserted = AssertionError if case.op == "all_gather_matmul" else ValueError
    for name in ("a", "b", "c"):
        matrix = tensors[name]
        yield f"{name} of one dimension", ValueError, {name: matrix.flatten()}, None
        yield f"{name} short of a row", ValueError, {name: matrix[:-1]}, None
        yield f"{name} short of a column", asserted, {name: matrix[:, :-1]}, None
        yield f"another element type of {name}", ValueError, {name: matrix.view(torch.bfloat16)}, None
    integers = {name: tensor.view(torch.int16) for name, tensor in tensors.items()}
    yield "integers", ValueError, integers, None
    yield "a bias that is short", ValueError, {"bias": tensors["bias"][:-1]}, None
    output, (rows, columns) = tensors["c"], tensors["a"].shape
    for what, strides in (("are one", (0, 1)), ("overlap", (4, 1))):
        yield f"an output whose rows {what}", ValueError, {"c": output.as_strided(output.shape, strides)}, None
    yield "a first matrix within the output", ValueError, {"a": output[:rows, :columns]}, None
    yield "a bias within the output", ValueError, {"bias": output[:rows, 0]}, None
    if case.op in REACHED:
        name = REACHED[case.op]
        yield "a tensor off the heap", ValueError, {name: torch.empty_like(tensors[name])}, None


def _wrong_settings(env, case):
    """(what, the exception, no tensors, the FusedConfig)."""
    right = config(env, case)
    wrong = [("block_size_m", 24), ("block_size_n", 8), ("block_size_k", -16), ("block_size_m", 1 << 20)]
    wrong += [("num_sms", 0), ("chunk_size", 0)]
    if case.op == "matmul_all_reduce":
        wrong += [("all_reduce_variant", "tree"), ("all_reduce_variant", "ring")]
    for field, value in wrong:
        yield f"{field}={value!r}", ValueError, {}, replace(right, **{field: value})


def run_alone(env, case):
    found, product = Findings(env.rank), prepare(env, case)
    env.settle()
    right, last = config(env, case), env.rank == env.world_size - 1
    short = replace(product, tensors={**product.tensors, "c": product.tensors["c"][:-1]})
    found.raises(
        "a row short here alone" if last else "the right call beside it",
        ValueError if last else RuntimeError,
        lambda: invoke(case, short if last else product, right, None, env.iris.ops),
    )
    other = replace(right, block_size_k=32) if last else right
    found.raises(
        "ranks that pass different blocks",
        ValueError,
        lambda: invoke(case, product, other, None, env.iris.ops),
        says="block_size_k=32",
    )
    preamble = getattr(env.iris.ops, f"{case.op}_preamble")
    given = short if last else product
    found.raises(
        "a preamble with a row short on one rank",
        ValueError if last else RuntimeError,
        lambda: preamble(*(given.tensors[name] for name in "cab"), config=right),
    )
    return _and_then(env, case, product, found)


def _and_then(env, case, product, found):
    """The heap is as it was, and a right call gives its result."""
    given = [inputs_of(env, case, product, 0)]
    wanted = [wanted_of(env, case, product, given[0])]
    env.settle()
    found.first = found.first or env.image.difference()
    env.settle()
    outputs = perform(env, case, product, given, found)
    env.settle()
    return judge(env, case, product, given, wanted, outputs, found)


def cases(ranks, op):
    # Compiled as most drawn cases of odd sizes are.
    return [FusedCase(op=op, m=20, n=33, k=23, biased=True, pad=3)]


@requirement("FUSED-REFUSED-001", cases=cases, op=OPS)
def test_refused(check, case):
    check(run_refused, case)


@requirement("FUSED-REFUSED-002", cases=cases, ranks=2, op=OPS)
def test_refused_on_one_rank(check, case):
    check(run_alone, case)
