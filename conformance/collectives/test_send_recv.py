"""send(tensor, dst, tag), recv(tensor, src, tag), sendrecv(send_tensor, recv_tensor, dst, src, tag): messages between
two ranks.

001  The received data is what was sent, for every shape, stride and element type, over repeated calls; other memory
     stays unchanged. In a sendrecv every rank sends to one rank and receives from another at once. A source may be
     overwritten after its call. Some sources are outside the heap, in memory that ends with their last element.
002  Messages of different tags are separate, and messages of one tag arrive in the order in which they were sent. So is
     a message of another tag that a rank sends to itself while all others wait for theirs.
003  If sender and receiver disagree, no data moves and both get an error. If one side's call is refused, the other side
     gets an error too, however late it is, and the next message arrives.
004  Messages can be captured in device graphs and replayed with other data.
005  A rank that stops inside its kernels, wherever that is, receives and sends the same; see
     ``conformance.support.steps``.
006  Messages whose last tile ends at each other row, and at columns of other lanes and of other elements of a lane. As
     in ``test_ragged``, kernels access nothing beyond source and target.

On the emulated device 001, 002, 005 and 006 also read the code of the kernels that they launch. Sources of 001 are on
the heap, or outside it, where they begin as far behind a multiple of 16 bytes as the target does, or at one.
"""

import contextlib
from dataclasses import replace

import torch

from conformance.collectives.calls import config, copied, party_of
from conformance.collectives.cases import CollectiveCase
from conformance.collectives.code import check_code
from conformance.collectives.graphs import captured
from conformance.collectives.operations import MESSAGE_TYPES
from conformance.isa.contract import contracts
from conformance.support.cases import HostCase
from conformance.support.outside import ends_with
from conformance.support.steps import CALLS, Stops
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name, payload, rounds_needed
from harness.oracles import bool_all
from harness.oracles.heap import starts


def run(env, case):
    mismatch = None
    for round_ in range(rounds_needed(case.dtype, case.calls * env.world_size * case.m * case.n)):
        mismatch = _round(env, case, round_) or mismatch
    return mismatch or _flaw(env, case, *peers(case, party_of(env, case)))


def _flaw(env, case, dst, src):
    """Return a fault in the code of this rank's kernels, which other ranks may not launch, or None. ``dst`` and
    ``src``: the ranks that it sends to and receives from, or None.

    A kernel that sends sets back the flag that it waited for, and the counter, and one that receives its flag: that of
    one side alone has fewer flags without a release.
    """
    if env.fault is not None:
        return None
    contract, relaxed = contracts()["sendrecv"], 2 * (dst is not None) + (src is not None)
    name = f"{contract.name}, with {relaxed} flags that are set back"
    return check_code(env, case, 0, 1, replace(contract, name=name, own=replace(contract.own, relaxed=relaxed)))


def run_stopping(env, case, stopping):
    return _round(env, case, 0, Stops(env, stopping, case.calls)) or _flaw(env, case, *peers(case, party_of(env, case)))


def run_ragged(env, case, confined):
    mismatch = None
    for round_ in range(rounds_needed(case.dtype, env.world_size * case.m * case.n)):
        mismatch = _round(env, case, round_, confined=confined) or mismatch
    return mismatch or _flaw(env, case, *peers(case, party_of(env, case)))


def _round(env, case, round_, stops=None, confined=False):
    party = party_of(env, case)
    env.image.reset()
    dst, src = peers(case, party)
    places = _places(env, case)
    for source, _ in places:
        _fill(env, case, source, _values(env, case, env.rank, round_, 0))
    staged = [_values(env, case, env.rank, round_, k).to(env.device.torch_device) for k in range(case.calls)]
    env.settle()
    findings, outputs = Findings(env.rank), []
    with _confined(env, case, places) if confined else contextlib.nullcontext(), env.acting():
        settings = config(env, case, 1)
        for k in range(case.calls):
            env.late(case.skewed, case.skew_ms)
            source, target = (env.image.tensor(region) for region in places[k])
            source, target = _matrix(source, case, case.in_pad, "in"), _matrix(target, case, case.out_pad, "out")
            source.copy_(staged[k])
            source = (_itself, ends_with, torch.clone)[k % 3](source)
            with stops.call(k) if stops else contextlib.nullcontext():
                tag = 0 if stops else k % 3
                handle = _call(env, case, source, target, dst, src, tag, party.handle, settings)
                # The source is written again as early as allowed: after a call that waits, else after its handle.
                outputs.append(copied(target, enqueued=case.async_op))
                if case.async_op and handle is not None:
                    handle.wait()
    if stops:
        stops.end(findings)
    env.settle()
    if not bool_all(env.fault is None):
        return findings.first
    for k, (source, target) in enumerate(places):
        wanted = None if src is None else _values(env, case, src, round_, k)
        if wanted is not None:
            findings.same(f"data received by call {k} from rank {src}", outputs[k], wanted)
            _matrix(env.image.expected(target), case, case.out_pad, "out").copy_(wanted)
        _matrix(env.image.expected(source), case, case.in_pad, "in").copy_(_values(env, case, env.rank, round_, k))
    return findings.first or env.image.difference()


def peers(case, party):
    """Return (dst, src) of this rank; None if it does not send or receive.

    "sendrecv" goes round the group as a ring; otherwise members at even places send to those at odd places.
    """
    members, place = party.members, party.place
    if not members:
        return None, None
    if case.op == "sendrecv":
        step = 1 + case.root
        return members[(place + step) % len(members)], members[(place - step) % len(members)]
    if place % 2:
        return None, members[place - 1]
    return (members[place + 1] if place + 1 < len(members) else None), None


def _call(env, case, source, target, dst, src, tag, group, settings):
    ccl, more = env.iris.ccl, {"tag": tag, "group": group, "async_op": case.async_op, "config": settings}
    if dst is not None and src is not None:
        return ccl.sendrecv(source, target, dst, src, **more)
    if dst is not None:
        return ccl.send(source, dst, **more)
    return ccl.recv(target, src, **more) if src is not None else None


def _places(env, case):
    dtype = of_name(case.dtype)
    counts = [_matrix_size(case, case.in_pad, "in"), _matrix_size(case, case.out_pad, "out")]
    distinct = 1 if case.reuse else case.calls
    at = [
        place + case.shift * dtype.itemsize for place in starts(1024, [c * dtype.itemsize for c in counts] * distinct)
    ]
    regions = [
        (
            env.image.claim(f"source of call {k}", at[2 * k], counts[0], dtype),
            env.image.claim(f"target of call {k}", at[2 * k + 1], counts[1], dtype),
        )
        for k in range(distinct)
    ]
    return [regions[k % distinct] for k in range(case.calls)]


def _itself(tensor):
    return tensor


def _confined(env, case, places):
    """Confine the kernels of the body to the matrices of ``places``."""
    tensors = []
    for source, target in places:
        tensors.append(_matrix(env.image.tensor(source), case, case.in_pad, "in"))
        tensors.append(_matrix(env.image.tensor(target), case, case.out_pad, "out"))
    return env.confined(tensors)


def _matrix_size(case, pad, which):
    rows, columns = (case.n, case.m) if case.turned in (which, "both") else (case.m, case.n)
    return rows * (columns + pad)


def _matrix(flat, case, pad, which):
    if case.turned in (which, "both"):
        return flat.view(case.n, case.m + pad)[:, : case.m].t()
    return flat.view(case.m, case.n + pad)[:, : case.n]


def _values(env, case, rank, round_, k):
    flat = payload(case.dtype, case.m * case.n, rank=rank, ranks=env.world_size, round_=round_, repetition=k)
    return flat.view(case.m, case.n)


def _fill(env, case, region, values):
    _matrix(env.image.tensor(region), case, case.in_pad, "in").copy_(values)


def cases(ranks, dtype):
    from conformance.collectives.strategies import messages

    return messages(ranks, dtype)


@requirement("CCL-MESSAGE-001", cases=cases, weight=2.0, ranks=2, dtype=MESSAGE_TYPES)
def test_messages(check, case):
    check(run, case)


def run_tags(env, case):
    """Send messages from rank 0 to rank 1, with three tags in turn and different numbers in each message."""
    findings = Findings(env.rank)
    count, tags = case.calls, (0, 5, 63)
    env.image.reset()
    region = env.image.claim("numbers", 1024, 64, torch.int64)
    tensor = env.image.tensor(region)
    env.image.fill(region, torch.zeros(64, dtype=torch.int64))
    env.settle()
    values = []
    with env.acting():
        settings = config(env, case, 1)
        for k in range(count):
            if env.rank == 0:
                tensor.fill_(100 * tags[k % 3] + k)
                env.iris.ccl.send(tensor, 1, tag=tags[k % 3], async_op=case.async_op, config=settings)
            elif env.rank == 1:
                env.iris.ccl.recv(tensor, 0, tag=tags[k % 3], async_op=case.async_op, config=settings)
                values.append(tensor.clone())
    env.settle()
    if not bool_all(env.fault is None):
        return findings.first
    for k, value in enumerate(values):
        wanted = torch.full((64,), 100 * tags[k % 3] + k, dtype=torch.int64)
        findings.same(f"message {k}, tag {tags[k % 3]}", value, wanted)
    if env.rank < 2:
        env.image.expect(region, torch.full((64,), 100 * tags[(count - 1) % 3] + count - 1, dtype=torch.int64))
    return (
        findings.first
        or env.image.difference()
        or _flaw(env, case, 1 if env.rank == 0 else None, 0 if env.rank == 1 else None)
    )


DISTANCES = (1, 2, 4, 8, 16, 32, 63)
"""Distances of two tags in use at the same time."""


def run_waiting(env, case):
    """Let all other ranks wait for the first rank, then for the last one. That rank sends to itself with another tag,
    and then to each of them."""
    findings, ccl, me = Findings(env.rank), env.iris.ccl, env.rank
    env.image.reset()
    regions = [env.image.claim(name, at, case.n, torch.int32) for name, at in (("sent", 1024), ("received", 8192))]
    for region in regions:
        env.image.fill(region, torch.zeros(case.n, dtype=torch.int32))
    source, target = map(env.image.tensor, regions)
    steps, received = [env.gate.step() for _ in DISTANCES], []
    env.settle()
    with env.acting():
        settings, own_settings = config(env, case, 1), config(env, replace(case, **OF_SENDRECV), 1)
        for k, distance in enumerate(DISTANCES):
            sender, tag, own_tag = (env.world_size - 1, distance, 0) if k % 2 else (0, 0, distance)
            if me == sender:
                env.gate.hold(steps[k])
            env.gate.enter(steps[k])
            if me == sender:
                ccl.sendrecv(source.fill_(100 * k + me), target, me, me, tag=own_tag, config=own_settings)
                for rank in range(env.world_size):
                    if rank != me:
                        ccl.send(source.fill_(100 * k + rank), rank, tag=tag, config=settings)
            else:
                with env.gate.watching():
                    ccl.recv(target, sender, tag=tag, config=settings)
            env.gate.reach(steps[k])
            received.append(target.clone())
    env.settle()
    if not bool_all(env.fault is None):
        return findings.first
    for k, values in enumerate(received):
        wanted = torch.full((case.n,), 100 * k + me, dtype=torch.int32)
        findings.same(f"message {k}, of two whose tags are {DISTANCES[k]} apart", values, wanted)
    return findings.first


OF_SENDRECV = {"op": "sendrecv", "block_m": 8, "block_n": 64, "warps": 1}
"""The kernel of 001 for sendrecv of int32; that of ``tag_cases`` is the one for send."""


def tag_cases(ranks):
    shape = {"op": "send", "dtype": "int64", "m": 1, "n": 64, "calls": 12}
    waiting = CollectiveCase(op="send", dtype="int32", n=64, block_m=4, block_n=128, warps=4)
    return [*(CollectiveCase(**shape, async_op=asynchronous) for asynchronous in (True, False)), waiting]


@requirement("CCL-MESSAGE-002", cases=tag_cases, ranks=2)
def test_tags(check, case):
    check(run_tags if case.dtype == "int64" else run_waiting, case)


LATE_MS = 50


def run_refused(env, case):
    """Let ranks 0 and 1 disagree in every possible way; then send a valid message. Other heaps stay unchanged."""
    findings, ccl, me = Findings(env.rank), env.iris.ccl, env.rank
    alone = env.group((0,), ((0,),))
    env.image.reset()
    region = env.image.claim("tensor", 1024, 8 * 16, torch.int64)
    tensor = env.image.tensor(region).view(8, 16)
    env.image.fill(region, torch.full((8 * 16,), me + 1, dtype=torch.int64))
    elsewhere = torch.zeros(8, 16, dtype=torch.int64, device=tensor.device)
    settings = config(env, CollectiveCase(op="send"), 1)
    env.settle()
    for label, call in (
        ("a tag below 0", lambda: ccl.send(tensor, (me + 1) % env.world_size, tag=-1, config=settings)),
        ("tag 64", lambda: ccl.recv(tensor, (me + 1) % env.world_size, tag=64, config=settings)),
        ("a rank outside the world", lambda: ccl.send(tensor, env.world_size, config=settings)),
        ("a message to itself", lambda: ccl.send(tensor, me, config=settings)),
        (
            "messages to itself and from another rank",
            lambda: ccl.sendrecv(tensor, tensor, me, (me + 1) % env.world_size),
        ),
        ("tensors that overlap", lambda: ccl.sendrecv(tensor[1:], tensor[:-1], me, me)),
    ):
        findings.raises(label, ValueError, call)
    if me == 0:
        findings.raises(
            "a peer that is not a member", ValueError, lambda: ccl.send(tensor, 1, group=alone, config=settings)
        )
    else:
        findings.raises(
            "a caller outside the group", RuntimeError, lambda: ccl.recv(tensor, 0, group=alone, config=settings)
        )

    def both(label, send, recv, sends=ValueError, recvs=ValueError, configs=(settings, settings)):
        """Send ``send`` from rank 0 to rank 1, which receives into the unsuitable ``recv``, or with an unsuitable
        config."""
        for waits in (True, False):
            more = {"async_op": not waits, "config": configs[me % 2]}
            if not waits and RuntimeError in (sends, recvs):
                continue  # A side that is refused gets no handle.
            if me < 2:
                peer, expected = 1 - me, (sends, recvs)[me]
                function, given = (ccl.send, send) if me == 0 else (ccl.recv, recv)
                findings.raises(
                    f"{label}, {'waiting' if waits else 'by the handle'}",
                    expected,
                    lambda f=function, g=given, p=peer, m=more: _done(f(g, p, **m)),
                )
                findings.same(f"tensor after {label}", tensor.cpu(), torch.full((8, 16), me + 1, dtype=torch.int64))

    both("fewer rows", tensor, tensor[:-1])
    both("other columns", tensor[:, :4], tensor[:, :8])
    both("as many elements in fewer rows", tensor, tensor.view(4, 32))
    both("as many elements in more rows", tensor, tensor.view(16, 8))
    both("as many elements in one dimension", tensor, tensor.view(-1))
    both("another element type", tensor, tensor.view(torch.float64))
    both("outside the heap", tensor, elsewhere, sends=RuntimeError)
    both("rows that are the same memory", tensor, tensor[:1].expand(8, 16), sends=RuntimeError)
    both("a tensor on another device", tensor.to("meta"), tensor, recvs=RuntimeError)
    both("three dimensions", tensor.view(2, 4, 16), tensor, recvs=RuntimeError)
    for language in (False, True):
        odd = env.under_test.config(block_size_m=3, block_size_n=64, use_gluon=language)
        label = f"{3 * 64} elements in a tile, {'Gluon' if language else 'Triton'}"
        both(f"{label}, to send", tensor, tensor, recvs=RuntimeError, configs=(odd, settings))
        both(f"{label}, to receive", tensor, tensor, sends=RuntimeError, configs=(settings, odd))
    # A refused side must consume the other side's report, even a late one: otherwise the next message reads it.
    if me == 0:
        findings.raises(
            "three dimensions, in a sendrecv", ValueError, lambda: ccl.sendrecv(tensor.view(2, 4, 16), tensor, 1, 1)
        )
    elif me == 1:
        findings.raises("its receiver", RuntimeError, lambda: ccl.recv(tensor, 0, config=settings))
        env.late(1, LATE_MS)
        findings.raises("its sender", RuntimeError, lambda: ccl.send(tensor, 0, config=settings))
    env.settle()
    findings = findings.first or env.image.difference()
    env.settle()
    received = None
    with env.acting():
        if me == 0:
            ccl.recv(tensor, 1, config=settings)
            received = tensor.clone()
            ccl.send(tensor.fill_(1), 1, config=settings)
        elif me == 1:
            env.late(1, LATE_MS)
            ccl.send(tensor.fill_(2), 0, config=settings)
            ccl.recv(tensor, 0, config=settings)
    env.settle()
    if received is not None:
        last = Findings(me)
        last.same("a message after the refused ones", received.cpu(), torch.full((8, 16), 2, dtype=torch.int64))
        findings = findings or last.first
    if me == 1:
        env.image.expect(region, torch.ones(8 * 16, dtype=torch.int64))
    return findings or env.image.difference()


def _done(handle):
    if handle is not None:
        handle.synchronize()


def refused_cases(ranks):
    return [HostCase("refused")]


@requirement("CCL-MESSAGE-003", cases=refused_cases, ranks=2)
def test_refused(check, case):
    check(run_refused, case)


STEPS, REPLAYS = 3, 4


def run_captured(env, case):
    """Replay a graph of messages round the ring. Each step sends new data from the same source tensor."""
    party = party_of(env, case)
    env.image.reset()
    (source, target), device = _places(env, case)[0], env.device.torch_device
    given, taken = env.image.tensor(source).view(case.m, case.n), env.image.tensor(target).view(case.m, case.n)
    dst, src = peers(case, party)
    staged = [torch.zeros(case.m, case.n, dtype=given.dtype, device=device) for _ in range(STEPS)]
    kept, results, settings = [torch.zeros_like(one) for one in staged], [], config(env, case, 1)
    findings = Findings(env.rank)

    def steps():
        for step in range(STEPS):
            given.copy_(staged[step])
            _call(env, case, given, taken, dst, src, step, None, settings).wait()
            kept[step].copy_(taken)

    with env.acting():
        steps()  # compiles
    env.settle()
    if not bool_all(env.fault is None):
        return None
    with env.acting():
        findings.raises("a capture without async_op", RuntimeError, lambda: captured(
            lambda: _call(env, replace(case, async_op=False), given, taken, dst, src, 0, None, settings)
        ))  # fmt: skip
        graph = captured(steps)
        for replay in range(REPLAYS):
            env.late((case.skewed + replay) % env.world_size, case.skew_ms)
            for step in range(STEPS):
                staged[step].copy_(_values(env, case, env.rank, 0, replay * STEPS + step).to(device))
            graph.replay()
            results += [one.clone() for one in kept]
    env.settle()
    for k, result in enumerate(results):
        findings.same(f"step {k % STEPS} of replay {k // STEPS}", result, _values(env, case, src, 0, k))
    return findings.first


def captured_cases(ranks):
    shape = {"op": "sendrecv", "dtype": "int32", "m": 40, "n": 272, "async_op": True, "skewed": 0, "skew_ms": 5}
    return [CollectiveCase(**shape, gluon=gluon) for gluon in (False, True)]


@requirement(
    "CCL-MESSAGE-004",
    cases=captured_cases,
    device="gpu",
    because="the emulated device has no device graphs",
    ranks=2,
    one_process="it captures work in a device graph of its process",
)
def test_captured(check, case):
    check(run_captured, case)


def stopping_cases(ranks):
    """Return a message of aligned rows, each with a ragged tile at its end, and one of contiguous elements that do not
    fill their last vector, with kernels of 001.

    The highest rank, which stops last, sends the first one: once it stops between its last two steps. The next call may
    begin on the other rank before that one ends.
    """
    shape = {"m": 5, "calls": CALLS + 1, "reuse": True, "async_op": True}
    return [
        CollectiveCase(op="send", dtype="int8", n=80, in_pad=16, out_pad=16, group="reversed", **shape),
        CollectiveCase(op="sendrecv", dtype="int32", n=70, **shape),
    ]


@requirement(
    "CCL-MESSAGE-005",
    cases=stopping_cases,
    ranks=2,
    device="emulated",
    because="only there can a rank stop inside a kernel",
    weak=False,
)
def test_stopping(check, case):
    alone = check.ranks % 2 if case.op == "send" else 0  # the last member of an odd number has no kernel to stop in
    for stopping in range(alone, check.ranks):
        check(run_stopping, case, stopping=stopping)


def ragged_cases(ranks, dtype):
    from conformance.collectives.strategies import ragged_messages

    return ragged_messages(dtype)


@requirement(
    "CCL-MESSAGE-006",
    cases=ragged_cases,
    ranks=2,
    weak=False,
    one_process="the emulated device confines the kernels of its own process",
    sampled=True,
    dtype=MESSAGE_TYPES,
)
def test_ragged(check, case):
    check(run_ragged, case, confined=judged.extended())
