"""Arguments that collectives refuse on every rank before any data moves. After a refusal a valid call still works.

001  Refused with ValueError, with and without async_op: tensors that are not matrices; shapes or element types that do
     not match each other or the group; tensors outside the heap; an output whose elements share memory with each other
     or with the input; a root that is not in the group, or that lacks its tensor; an unknown reduction, or one that the
     element type does not support; a tile that the kernel does not support; an unknown variant. An output and
     an input that touch are not refused, nor is a member's own rows of the larger one of the two.
002  If only one member passes a wrong argument, it gets the reason, the others get an error that names it, and no
     member waits. Ranks outside the group are not involved; a rank outside that calls gets a RuntimeError.
003  If members pass different arguments, all of them get a ValueError that states the arguments of each, in every
     variant.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

from conformance.collectives.calls import config, fill, invoke, judge, party_of, perform, prepare
from conformance.collectives.operations import ALWAYS, COLLECTIVES, NEVER, one_of_each_kind
from conformance.collectives.own_rows import check_own_rows
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import chunks_of, members_of

OVERLAPPING = 512 * 1024
FLOAT_SUM = {"dtype": "fp32", "m": 5, "n": 70}


def run_refused(env, case):
    findings = Findings(env.rank)
    calls = prepare(env, case)
    (call,) = calls
    env.settle()
    right = config(env, case, call.party.size)
    for label, wrong_call, settings in [*_wrong_tensors(env, case, call), *_wrong_settings(env, case, call)]:
        for asynchronous in (False, True):
            attempt = replace(case, async_op=asynchronous)
            if wrong_call is not None:
                findings.raises(
                    f"{label}{' with async_op' * asynchronous}",
                    ValueError,
                    lambda a=attempt, c=wrong_call, s=settings: invoke(env, a, c, s or right),
                )
            elif not asynchronous:
                findings.raises(f"{label} elsewhere", RuntimeError, lambda a=attempt: invoke(env, a, call, right))
    if env.world_size > 1:
        others = env.group(members_of("stride", 1 - env.rank % 2, env.world_size), chunks_of("stride", env.world_size))
        elsewhere = replace(call, party=replace(call.party, handle=others))
        findings.raises("a group without this rank", RuntimeError, lambda: invoke(env, case, elsewhere, right))
    for label, op, settings in _wrong_reductions(env, case):
        findings.raises(label, ValueError, lambda o=op, s=settings: _reduced_with(env, case, call, s or right, o))
    if COLLECTIVES[case.op].in_place != ALWAYS:
        _touch(env, case, call, findings)
    check_own_rows(env, case, findings)
    return _and_then(env, case, calls, findings)


def _wrong_tensors(env, case, call):
    """Yield (label, the wrong call or None if the call of this rank is valid, None)."""
    op, root = COLLECTIVES[case.op], call.party.members[call.party.place] == call.party.root

    yield "one dimension", _with(call, lambda tensor: tensor.flatten()), None
    yield "three dimensions", _with(call, lambda tensor: tensor[None]), None
    for name in ("output",) if op.in_place == ALWAYS else ("output", "input"):
        tensor = getattr(call, name)
        if name in op.reached:
            yield f"an {name} outside the heap", replace(call, **{name: torch.empty_like(tensor)}), None
        else:
            elsewhere = None if tensor is None else replace(call, **{name: tensor.to("meta")})
            yield f"an {name} on another device", elsewhere, None
        lazy = None if tensor is None else replace(call, **{name: torch._neg_view(tensor)})
        yield f"an {name} that torch negates lazily", lazy, None
    writes = root or op.results_at == "all"
    shared = replace(call, output=call.output.as_strided(call.output.shape, (0, 1))) if writes else None
    yield "an output whose rows are the same memory", shared, None
    half = replace(call, output=call.output.as_strided(call.output.shape, (32, 1))) if writes else None
    yield "an output whose rows overlap by half", half, None
    if op.in_place != ALWAYS:
        both = op.passes("input", is_root=root) and op.passes("output", is_root=root)
        for label, change in (
            ("one row too few", lambda output: output[:-1]),
            ("one column too few", lambda output: output[:, :-1]),
            ("another element type", lambda output: output.view(torch.int32)),
        ):
            yield label, replace(call, output=change(call.output)) if both else None, None
        for shared in (64, 1):
            label = f"an input that begins {shared} elements before the output's end"
            yield label, _behind(env, call, -shared) if both else None, None
    inputs, outputs = op.shapes(1, 1, 2)  # in a group of one, input and output have the same shape for every op
    if inputs == outputs and op.in_place == NEVER:
        yield "an output that is the input", replace(call, output=call.input), None
    if inputs[1] > 1 and call.party.size > 1:
        yield "columns that the group's size does not divide", _with(call, lambda tensor: tensor[:, :-1]), None
    if op.root:
        for place in (-1, 1 << 20, 1 << 40):
            yield f"root {place}", replace(call, party=replace(call.party, root=place)), None
    for name in ("input", "output"):
        if op.in_place != ALWAYS and not op.passes(name, is_root=False):
            yield f"a root without its {name}", replace(call, **{name: None}) if root else None, None


def _behind(env, call, gap):
    """Return the call with other tensors: the input begins ``gap`` elements after the output's end."""
    memory = env.image.arena[OVERLAPPING:].view(torch.float32)
    output, start = memory[: call.output.numel()].view(call.output.shape), call.output.numel() + gap
    source = memory[start : start + call.input.numel()].view(call.input.shape)
    return replace(call, output=output, input=source)


def _touch(env, case, call, findings):
    """Make a valid call whose output and input are the left and the right half of a matrix: in each row they touch."""
    (rows_in, wide_in), (rows_out, wide_out) = COLLECTIVES[case.op].shapes(case.m, case.n, call.party.size)
    rows, wide = max(rows_in, rows_out), wide_in + wide_out
    both = env.image.claim("output and input that touch", OVERLAPPING, rows * wide, torch.float32)

    def halves(memory):
        matrix = memory.view(rows, wide)
        return matrix[:rows_out, :wide_out], matrix[:rows_in, wide_out:]

    output, source = halves(env.image.tensor(both))
    touching = replace(
        call, output=None if call.output is None else output, input=None if call.input is None else source
    )
    fill(touching)
    for held, expected, values in zip(
        (call.output, call.input), halves(env.image.expected(both)), (call.wanted, call.given), strict=True
    ):
        if held is not None and values is not None:
            expected.copy_(values)
    env.settle()
    outputs = perform(env, case, [touching])
    env.settle()
    if call.wanted is not None and env.fault is None:
        findings.same("output of a call whose output and input touch", outputs[0], call.wanted)


def _wrong_settings(env, case, call):
    """Yield (label, the call, a wrong Config)."""
    make = env.under_test.config
    for language in (False, True):
        odd = make(block_size_m=3, block_size_n=64, use_gluon=language)
        yield f"{3 * 64} elements in a tile, {'Gluon' if language else 'Triton'}", call, odd
    yield "a tile smaller than the work-group", call, make(block_size_m=1, block_size_n=64, use_gluon=True)
    none = make()
    none.comm_sms = 0
    yield "no programs, assigned after the Config was created", call, none
    op = COLLECTIVES[case.op]
    if op.has_variant_field:
        changed = make()
        setattr(changed, f"{case.op}_variant", "tree")
        yield "an unknown variant, assigned after the Config was created", call, changed
    for label, settings in op.wrong_settings(make, call.party.size):
        yield label, call, settings


def _wrong_reductions(env, case):
    collective = COLLECTIVES[case.op]
    operations = env.under_test.module.ccl.ReduceOp
    if collective.reduces:
        for op in ("BAND", "BOR", "BXOR"):
            yield f"{op} of {case.dtype}", getattr(operations, op), None
        for op in (7, -1, "sum", None, dist.ReduceOp.PRODUCT):  # the last one equals the number of another reduction
            yield f"op={op!r}", op, None
    for label, name, settings in collective.wrong_reductions(env.under_test.config):
        yield label, getattr(operations, name), settings


def _reduced_with(env, case, call, settings, op):
    root = COLLECTIVES[case.op].root
    more = {root: call.party.root} if root else {}
    function = getattr(env.iris.ccl, case.op)
    return function(call.output, call.input, op=op, group=call.party.handle, config=settings, **more)


def _with(call, change):
    return replace(
        call,
        input=None if call.input is None else change(call.input),
        output=None if call.output is None else change(call.output),
    )


def _and_then(env, case, calls, findings):
    """Check that the heap is unchanged and that a valid call gives its result."""
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    return judge(env, case, calls, outputs, findings)


def refused_cases(ranks, op):
    """Return the case, with a width at which tensors that touch are aligned, and their strides no multiples of 16, as
    those of other tests: then they have the same kernel."""
    op = COLLECTIVES[op]
    widths = (n for n in (68, 69, 70) if op.shapes(1, n, ranks)[1][1] % 8 == 4)
    return [op.case(**FLOAT_SUM | {"n": next(widths, 70)}, root=ranks - 1)]


@requirement("CCL-REFUSE-001", cases=refused_cases, op=COLLECTIVES, weak=False)
def test_refused(check, case):
    check(run_refused, case)


def run_alone(env, case):
    """Make a call that is wrong on the highest member and valid on the others."""
    findings, party = Findings(env.rank), party_of(env, case)
    calls = prepare(env, case)
    env.settle()
    if party.members:
        (call,) = calls
        settings = config(env, case, party.size)
        if env.rank == max(party.members):
            wrong = _with(call, lambda tensor: tensor.flatten())
            findings.raises("one dimension, on this rank only", ValueError, lambda: invoke(env, case, wrong, settings))
        else:
            findings.raises(
                "a valid call while another member's is wrong",
                RuntimeError,
                lambda: invoke(env, case, call, settings),
                says=str(max(party.members)),
            )
    return _and_then(env, case, calls, findings)


def alone_cases(ranks, op):
    # In both groups the places of members are not their ranks. Kernels for three members are compiled of one op of each
    # kind only.
    group = "uneven" if op in one_of_each_kind() else "reversed"
    return [COLLECTIVES[op].case(**FLOAT_SUM, group=group) for group in ("world", group)]


@requirement("CCL-REFUSE-002", cases=alone_cases, ranks=2, op=COLLECTIVES, weak=False)
def test_one_alone_is_refused(check, case):
    check(run_alone, case)


def run_differing(env, case):
    """Make calls in which the highest rank passes another argument, which would be valid if all ranks passed it."""
    findings = Findings(env.rank)
    calls = prepare(env, case)
    (call,) = calls
    env.settle()
    deviates = env.rank == env.world_size - 1
    right = config(env, case, call.party.size)
    rows, columns = call.output.shape
    elsewhere = env.image.arena[OVERLAPPING:].view(torch.float32)
    other = next(op for op in reversed(COLLECTIVES) if op != case.op and hasattr(env.iris.ccl, op))
    attempts = [
        ("shapes", case, _with(call, lambda tensor: tensor[:, : tensor.shape[1] // 2]), right),
        ("element types", case, _with(call, lambda tensor: tensor.view(torch.int32)), right),
        ("numbers of programs", case, call, config(env, replace(case, comm_sms=3), call.party.size)),
        ("tiles", case, call, config(env, replace(case, block_m=4, block_n=128), call.party.size)),
        ("languages", case, call, config(env, replace(case, gluon=True), call.party.size)),
        ("collectives", replace(case, op=other), call, right),
    ]
    if not case.variant:  # of some variants, no other member accesses the output
        moved = elsewhere[: rows * columns].view(rows, columns)
        wider = call.output.as_strided((rows, columns), (2 * columns, 1))
        attempts.append(("addresses", case, replace(call, output=moved), right))
        attempts.append(("strides", case, replace(call, output=wider), right))
    if COLLECTIVES[case.op].root:
        attempts.append(("roots", case, replace(call, party=replace(call.party, root=0)), right))
    if COLLECTIVES[case.op].reduces:
        attempts.append(("reductions", replace(case, reduce="max"), call, right))
    for label, one_case, one_call, settings in attempts:
        if not deviates:
            one_case, one_call, settings = case, call, right
        findings.raises(
            f"different {label} on the highest rank",
            (ValueError, RuntimeError) if label == "collectives" else ValueError,
            lambda k=one_case, c=one_call, s=settings: invoke(env, k, c, s),
        )
        env.settle()
    return _and_then(env, case, calls, findings)


def differing_cases(ranks, op):
    plain = COLLECTIVES[op].case(**FLOAT_SUM, root=1)
    return [plain, *(replace(plain, variant=one.name) for one in COLLECTIVES[op].variants if one.name)]


@requirement("CCL-REFUSE-003", cases=differing_cases, ranks=2, op=one_of_each_kind())
def test_members_that_differ_are_refused(check, case):
    check(run_differing, case)
