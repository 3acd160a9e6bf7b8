"""What collectives refuse, on every rank, before anything moves; behind it a right call gives its result.

001  Tensors that are not matrices, or whose shapes or element types do not fit one another or the group; tensors off
     the heap; outputs whose elements share memory, or share it with the input; roots that are not in the group, and a
     root without its tensor; reductions that are none, or that the element type does not have; tiles that the kernel
     cannot have, and variants that there are not. ValueError, with async_op and without.
002  Where one member alone is wrong, it is told what, the others that it failed and none waits. Who is not in the group
     has no part in it. RuntimeError for who is not in the group and calls.
003  Members that do not pass the same are all told what each of them passed. ValueError.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

from conformance.collectives.calls import config, invoke, judge, party_of, perform, prepare
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import COLLECTIVES, REDUCTIONS, ROOTED, CollectiveCase, chunks_of, members_of

OVERLAPPING = 512 * 1024
FLOAT_SUM = {"dtype": "fp32", "m": 8, "n": 64}
REACHED = {
    "all_gather": ("output",), "all_to_all": ("output",), "all_reduce": ("output", "input"),
    "reduce_scatter": ("input",), "broadcast": ("output",), "reduce": ("output", "input"), "scatter": ("output",),
    "gather": ("input",),
}  # fmt: skip
"""The tensors of an op that other members read or write. The others are the member's own."""


def run_refused(env, case):
    found = Findings(env.rank)
    calls = prepare(env, case)
    (call,) = calls
    env.settle()
    right = config(env, case, call.party.size)
    for what, wrong_call, settings in [*_wrong_tensors(env, case, call), *_wrong_settings(env, case, call)]:
        for asynchronous in (False, True):
            attempt = replace(case, async_op=asynchronous)
            if wrong_call is not None:
                found.raises(
                    f"{what}{' with async_op' * asynchronous}",
                    ValueError,
                    lambda a=attempt, c=wrong_call, s=settings: invoke(env, a, c, s or right),
                )
            elif not asynchronous:
                found.raises(f"{what} elsewhere", RuntimeError, lambda a=attempt: invoke(env, a, call, right))
    if env.world_size > 1:
        others = env.group(members_of("stride", 1 - env.rank % 2, env.world_size), chunks_of("stride", env.world_size))
        elsewhere = replace(call, party=replace(call.party, handle=others))
        found.raises("a group without this rank", RuntimeError, lambda: invoke(env, case, elsewhere, right))
    for what, op, settings in _wrong_reductions(env, case):
        found.raises(what, ValueError, lambda o=op, s=settings: _reduced_with(env, case, call, s or right, o))
    return _and_then(env, case, calls, found)


def _wrong_tensors(env, case, call):
    """(what, the call with it or None where it is no concern of this rank, None)."""
    root = call.party.members[call.party.place] == call.party.root

    def one(change, concerned=True):
        return _with(call, change) if concerned else None

    yield "one dimension", one(lambda tensor: tensor.flatten()), None
    yield "three dimensions", one(lambda tensor: tensor[None]), None
    for name in ("output", "input"):
        tensor = getattr(call, name)
        if name in REACHED[case.op]:
            yield f"an {name} off the heap", replace(call, **{name: torch.empty_like(tensor)}), None
        elif case.op != "broadcast":
            elsewhere = None if tensor is None else replace(call, **{name: tensor.to("meta")})
            yield f"an {name} of another device", elsewhere, None
    writes = root or case.op not in ("reduce", "gather")
    shared = replace(call, output=call.output.as_strided(call.output.shape, (0, 1))) if writes else None
    yield "an output whose rows are one", shared, None
    half = replace(call, output=call.output.as_strided(call.output.shape, (32, 1))) if writes else None
    yield "an output whose rows lie over one another by half", half, None
    if case.op != "broadcast":
        both = root or case.op not in ("scatter", "gather")
        for what, change in (
            ("rows short of one", lambda output: output[:-1]),
            ("columns short of one", lambda output: output[:, :-1]),
            ("another element type", lambda output: output.view(torch.int32)),
        ):
            yield what, replace(call, output=change(call.output)) if both else None, None
        yield "an input that begins in the output", _overlapping(env, call) if both else None, None
    if case.op == "all_to_all":
        yield "an output that is the input", replace(call, output=call.input), None
    if case.op == "all_to_all" and call.party.size > 1:
        yield "columns that do not divide", one(lambda tensor: tensor[:, :-1]), None
    if case.op in ROOTED:
        for place in (-1, 1 << 20, 1 << 40):
            yield f"root {place}", replace(call, party=replace(call.party, root=place)), None
    if case.op == "scatter":
        yield "a root without its input", replace(call, input=None) if root else None, None
    if case.op == "gather":
        yield "a root without its output", replace(call, output=None) if root else None, None


def _overlapping(env, call):
    memory = env.image.arena[OVERLAPPING:].view(torch.float32)
    output, end = memory[: call.output.numel()].view(call.output.shape), call.output.numel()
    source = memory[end - 64 : end - 64 + call.input.numel()].view(call.input.shape)
    return replace(call, output=output, input=source)


def _wrong_settings(env, case, call):
    """(what, the call, its Config)."""
    size, make = call.party.size, env.under_test.config
    for language in (False, True):
        odd = make(block_size_m=3, block_size_n=64, use_gluon=language)
        yield f"{3 * 64} elements in a tile, {'Gluon' if language else 'Triton'}", call, odd
    yield "a tile smaller than the work-group", call, make(block_size_m=1, block_size_n=64, use_gluon=True)
    none = make()
    none.comm_sms = 0
    yield "no programs, which were assigned later", call, none
    if case.op in ("all_gather", "all_reduce", "reduce_scatter"):
        changed = make()
        setattr(changed, f"{case.op}_variant", "tree")
        yield "a variant that was assigned later", call, changed
    if case.op == "all_gather":
        yield "a variant that Gluon lacks", call, make(all_gather_variant="partitioned", comm_sms=size, use_gluon=True)
    if case.op == "all_reduce":
        yield "more rings than programs", call, make(all_reduce_variant="ring", all_reduce_num_rings=3, comm_sms=2)
        sliced = make(all_reduce_variant="ring")
        sliced.all_reduce_ring_slice_n = 48
        yield "slices that do not divide the tile", call, sliced
    if case.op == "all_gather" and size > 1:
        yield "programs that do not divide", call, make(all_gather_variant="partitioned", comm_sms=size * 4 + 1)


def _wrong_reductions(env, case):
    if case.op in REDUCTIONS:
        operations = env.under_test.module.ccl.ReduceOp
        for op in ("BAND", "BOR", "BXOR"):
            yield f"{op} of {case.dtype}", getattr(operations, op), None
        for op in (7, -1, "sum", None, dist.ReduceOp.PRODUCT):  # the last one equals another one's number
            yield f"op={op!r}", op, None
    if case.op == "all_reduce":
        yield "an atomic product", operations.PRODUCT, env.under_test.config(all_reduce_variant="atomic")


def _reduced_with(env, case, call, settings, op):
    more = {"dst": call.party.root} if case.op == "reduce" else {}
    function = getattr(env.iris.ccl, case.op)
    return function(call.output, call.input, op=op, group=call.party.handle, config=settings, **more)


def _with(call, change):
    return replace(
        call,
        input=None if call.input is None else change(call.input),
        output=None if call.output is None else change(call.output),
    )


def _and_then(env, case, calls, found):
    """The heap is as it was, and a right call gives its result."""
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    return judge(env, case, calls, outputs, found)


def refused_cases(ranks, op):
    return [CollectiveCase(op=op, **FLOAT_SUM, in_place=op == "broadcast", root=ranks - 1)]


@requirement("CCL-REFUSE-001", cases=refused_cases, op=COLLECTIVES)
def test_refused(check, case):
    check(run_refused, case)


def run_alone(env, case):
    """The highest member is wrong, the others are right."""
    found, party = Findings(env.rank), party_of(env, case)
    calls = prepare(env, case)
    env.settle()
    if party.members:
        (call,) = calls
        settings = config(env, case, party.size)
        if env.rank == max(party.members):
            wrong = _with(call, lambda tensor: tensor.flatten())
            found.raises("one dimension, here alone", ValueError, lambda: invoke(env, case, wrong, settings))
        else:
            found.raises(
                "the right call beside it",
                RuntimeError,
                lambda: invoke(env, case, call, settings),
                says=str(max(party.members)),
            )
    return _and_then(env, case, calls, found)


def alone_cases(ranks, op):
    return [
        CollectiveCase(op=op, **FLOAT_SUM, in_place=op == "broadcast", group=group) for group in ("world", "uneven")
    ]


@requirement("CCL-REFUSE-002", cases=alone_cases, ranks=2, op=COLLECTIVES)
def test_one_alone_is_refused(check, case):
    check(run_alone, case)


def run_differing(env, case):
    """In each attempt the highest rank passes something else that would be right if all did."""
    found = Findings(env.rank)
    calls = prepare(env, case)
    (call,) = calls
    env.settle()
    other = env.rank == env.world_size - 1
    right = config(env, case, call.party.size)
    rows, columns = call.output.shape
    elsewhere = env.image.arena[OVERLAPPING:].view(torch.float32)
    attempts = [
        ("places", case, replace(call, output=elsewhere[: rows * columns].view(rows, columns)), right),
        ("strides", case, replace(call, output=call.output.as_strided((rows, columns), (2 * columns, 1))), right),
        ("shapes", case, _with(call, lambda tensor: tensor[:, : tensor.shape[1] // 2]), right),
        ("element types", case, _with(call, lambda tensor: tensor.view(torch.int32)), right),
        ("numbers of programs", case, call, config(env, replace(case, comm_sms=3), call.party.size)),
        ("tiles", case, call, config(env, replace(case, block_m=4, block_n=128), call.party.size)),
        ("languages", case, call, config(env, replace(case, gluon=True), call.party.size)),
        ("collectives", replace(case, op="all_gather" if case.op == "gather" else "gather"), call, right),
    ]
    if case.op in ROOTED:
        attempts.append(("roots", case, replace(call, party=replace(call.party, root=0)), right))
    if case.op in REDUCTIONS:
        attempts.append(("reductions", replace(case, reduce="max"), call, right))
    for what, one_case, one_call, settings in attempts:
        if not other:
            one_case, one_call, settings = case, call, right
        found.raises(
            f"other {what} on the highest rank",
            (ValueError, RuntimeError) if what == "collectives" else ValueError,
            lambda k=one_case, c=one_call, s=settings: invoke(env, k, c, s),
        )
        env.settle()
    return _and_then(env, case, calls, found)


def differing_cases(ranks, op):
    return [CollectiveCase(op=op, **FLOAT_SUM, in_place=op == "broadcast", root=1)]


@requirement("CCL-REFUSE-003", cases=differing_cases, ranks=2, op=("all_reduce", "broadcast", "all_gather"))
def test_members_that_differ_are_refused(check, case):
    check(run_differing, case)
