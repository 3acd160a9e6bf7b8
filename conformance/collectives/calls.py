"""Calls of collectives: their tensors on the heap, torch.distributed's result for the same inputs, and how a case runs.

A rank that is in no group of the case takes no part, and must find its heap as it was.
"""

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from conformance.collectives import shares
from fixtures.findings import Findings
from fixtures.worker import Env
from harness.cases import (
    FURTHER,
    REDUCTIONS,
    ROOTED,
    CollectiveCase,
    chunks_of,
    contribution,
    members_of,
    of_name,
    payload,
    rounds_needed,
    shapes_of,
    size_of,
)
from harness.oracles import Region, bool_all, broadcast, gathered, reduced, scattered, swapped
from harness.oracles.heap import starts

PADDING = 8
BOOL_ROUNDS = 3
"""A boolean tells one bit of where it comes from: not all are asked for."""


@dataclass(frozen=True)
class Party:
    """The group of a case as this rank sees it. ``members`` are global ranks, in order: none where this rank is in no
    group. ``handle`` is None for the world. ``root`` is a global rank."""

    members: tuple[int, ...]
    handle: Any
    root: int
    place: int

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(frozen=True)
class Call:
    """One call. ``given`` and ``wanted`` are what its input holds, and its output gets: None where this rank gives or
    gets nothing; ``before`` is what the output holds before that, None for poison. A reduce_scatter's ``wanted`` is
    ``before`` where others own the result."""

    party: Party
    input: torch.Tensor | None
    output: torch.Tensor | None
    source: Region
    target: Region
    given: torch.Tensor | None
    wanted: torch.Tensor | None
    before: torch.Tensor | None


def run(env: Env, case: CollectiveCase) -> Any:
    """What most requirements of collectives have the ranks do."""
    found = None
    for round_ in range(rounds_of(case, env.world_size)):
        calls = prepare(env, case, round_)
        env.settle()
        outputs = perform(env, case, calls)
        env.settle()
        found = judge(env, case, calls, outputs) or found
    return found


def rounds_of(case: CollectiveCase, ranks: int) -> int:
    """How often a case must run so that every element that moves has been told from every other one."""
    if case.op in REDUCTIONS:
        return 1
    (rows, columns), _ = shapes_of(case.op, case.m, case.n, ranks)
    needed = rounds_needed(_told(case.dtype), case.calls * ranks * rows * columns)
    return min(needed, BOOL_ROUNDS) if case.dtype == "bool" else needed


def _told(dtype: str) -> str:
    """The element type whose payloads elements of ``dtype`` have: integers for what is only moved."""
    return f"int{8 * size_of(dtype)}" if dtype in FURTHER and dtype != "bool" else dtype


def party_of(env: Env, case: CollectiveCase) -> Party:
    """Creates the groups of the case on every rank."""
    members = members_of(case.group, env.rank, env.world_size)
    handle = env.group(members, chunks_of(case.group, env.world_size))
    if handle is not None:
        # Older releases of torch sort the ranks of a group.
        members = tuple(dist.get_process_group_ranks(handle))
    if not members:
        return Party((), None, -1, -1)
    return Party(members, handle, members[case.root % len(members)], members.index(env.rank))


def prepare(env: Env, case: CollectiveCase, round_: int = 0) -> list[Call]:
    """Poisoned heap, filled inputs, references. The inputs of later calls on the same tensors are not there yet."""
    party = party_of(env, case)
    env.image.reset()
    if not party.members:
        return []
    calls = [_call(env, case, party, *regions, k, round_) for k, regions in enumerate(_regions(env, case, party.size))]
    for k, call in enumerate(calls):
        if not (case.reuse and k):
            fill(call)
    return calls


def perform(env: Env, case: CollectiveCase, calls: list[Call], ccl: Any = None) -> list[torch.Tensor | None]:
    """Makes the calls; returns what the output of each held, by a copy enqueued behind it or, where the call waits, by
    a look at it right away."""
    outputs: list[torch.Tensor | None] = []
    handles = []
    ready = [_staged(env, call) for call in calls]
    with env.acting():
        settings = config(env, case, calls[0].party.size) if calls else None
        for k, call in enumerate(calls):
            env.late(case.skewed, case.skew_ms)
            if case.reuse and k:
                fill(ready[k])
            handles.append(invoke(env, case, call, settings, ccl))
            outputs.append(None if call.output is None else seen(call.output, behind=case.async_op))
        for handle in handles:
            if case.async_op and handle is not None:
                handle.wait()
    return outputs


def invoke(env: Env, case: CollectiveCase, call: Call, settings: Any, ccl: Any = None) -> Any:
    """One call of the library, by the instance under test or by another one's ``ccl``."""
    tensors = (call.output,) if case.op == "broadcast" else (call.output, call.input)
    more: dict[str, Any] = {}
    if case.op in ROOTED:
        more["src" if case.op in ("broadcast", "scatter") else "dst"] = call.party.root
    if case.op in REDUCTIONS:
        more["op"] = getattr(env.under_test.module.ccl.ReduceOp, case.reduce.upper())
    function = getattr(ccl or env.iris.ccl, case.op)
    return function(*tensors, group=call.party.handle, async_op=case.async_op, config=settings, **more)


def config(env: Env, case: CollectiveCase, members: int) -> Any:
    """The case's Config, or None."""
    if case.default:
        return None
    more: dict[str, Any] = {}
    if case.variant:
        more[f"{case.op}_variant"] = case.variant
    if case.protocol and "protocol" in {field.name for field in dataclasses.fields(env.under_test.config)}:
        more["protocol"] = case.protocol
    if case.op in ("all_reduce", "reduce_scatter"):
        more.update(all_reduce_distribution=case.distribution, all_reduce_num_rings=case.rings)
    return env.under_test.config(
        block_size_m=case.block_m, block_size_n=case.block_n, swizzle_size=case.swizzle,
        comm_sms=case.comm_sms * (members if case.variant == "partitioned" else 1), num_warps=env.warps(case.warps),
        use_gluon=case.gluon, threads_per_warp=env.device.lanes,
        num_xcds=2,
        chunk_size=2,  # Not as follows from comm_sms, since it selects another compiled kernel.
        **more,
    )  # fmt: skip


def fill(call: Call) -> None:
    """Put into a call's tensors what they must hold before it, on the current stream."""
    if call.before is not None and call.output is not None:
        call.output.copy_(call.before)
    if call.given is not None and call.input is not None:
        call.input.copy_(call.given)


def expect(env: Env, case: CollectiveCase, call: Call) -> None:
    """The input must still hold what was given, the output what is wanted; padding stays poison."""
    inputs, outputs = shapes_of(case.op, case.m, case.n, call.party.size)
    if call.given is not None and not case.in_place:
        _matrix(env.image.expected(call.source), inputs, *_input_layout(case)).copy_(call.given)
    held = call.given if case.in_place and call.wanted is None else call.wanted
    if held is not None:
        _matrix(env.image.expected(call.target), outputs, *_output_layout(case)).copy_(held)


def judge(
    env: Env,
    case: CollectiveCase,
    calls: list[Call],
    outputs: list[torch.Tensor | None],
    found: Findings | None = None,
) -> Any:
    """The first difference: what was ``found`` before, of each call's output when it could be seen first, then of the
    whole heap. Collective over the world. None where a rank has a fault, which is the result then."""
    found = found or Findings(env.rank)
    if not bool_all(env.fault is None):
        return found.first
    for k, (call, output) in enumerate(zip(calls, outputs, strict=True)):
        if call.wanted is not None:
            found.same(f"output of call {k} behind it", output, call.wanted)
        expect(env, case, call)
    return found.first or env.image.difference()


def seen(output: torch.Tensor, *, behind: bool) -> torch.Tensor:
    """A copy: on the current stream, or at once, on a stream that waits for nothing."""
    if behind or not output.is_cuda:
        return output.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        copy = output.clone()
    stream.synchronize()
    return copy


def _call(env: Env, case: CollectiveCase, party: Party, source: Region, target: Region, k: int, round_: int) -> Call:
    inputs, outputs = shapes_of(case.op, case.m, case.n, party.size)
    mine = _values(env, case, party, inputs, k, round_)
    wanted = _wanted(case, party, mine) if mine.numel() else mine.new_empty(outputs)
    root = env.rank == party.root
    gives = root or case.op not in ("broadcast", "scatter")
    gets = root or case.op not in ("reduce", "gather")
    input_ = _matrix(env.image.tensor(source), inputs, *_input_layout(case))
    output = _matrix(env.image.tensor(target), outputs, *_output_layout(case))
    before = None
    if case.op == "reduce_scatter":
        before = mine if case.in_place else (~wanted.flatten().view(torch.uint8)).view(wanted.dtype).view(wanted.shape)
        wanted = torch.where(shares.owned(case, party.place, party.size), wanted, before)
    return Call(
        party,
        input_ if gives else None,
        output if gets or case.op != "gather" else None,
        source,
        target,
        mine if gives else None,
        wanted if gets else None,
        before,
    )


def _values(env: Env, case: CollectiveCase, party: Party, shape: tuple[int, int], k: int, round_: int) -> torch.Tensor:
    count = shape[0] * shape[1]
    if case.op in REDUCTIONS:
        flat = contribution(case.reduce, case.dtype, count, member=party.place, members=party.size, repetition=k)
    else:
        flat = payload(_told(case.dtype), count, rank=env.rank, ranks=env.world_size, round_=round_, repetition=k)
        flat = flat.view(of_name(case.dtype))
    return flat.view(shape)


def _wanted(case: CollectiveCase, party: Party, mine: torch.Tensor) -> torch.Tensor:
    group, members = party.handle, party.size
    if case.op in ("all_gather", "gather"):
        return gathered(mine, group, members)
    if case.op == "all_to_all":
        return swapped(mine, group, members)
    if case.op == "broadcast":
        return broadcast(mine, party.root, group)
    if case.op == "scatter":
        return scattered(mine, party.root, group, members)
    return reduced(mine, case.reduce, group, members)


def _regions(env: Env, case: CollectiveCase, members: int) -> list[tuple[Region, Region]]:
    """Input and output of each call: at the same places on every rank, whatever the size of its group and, up to
    ``PADDING``, the padding of its tensors."""
    dtype = of_name(case.dtype)
    most = max(len(chunk) for chunk in chunks_of(case.group, env.world_size))
    distinct = 1 if case.reuse else case.calls
    roomy = replace(case, in_pad=max(case.in_pad, PADDING), out_pad=max(case.out_pad, PADDING))
    room = [count * dtype.itemsize for count in _counts(roomy, most)]
    places = [place + case.shift * dtype.itemsize for place in starts(1024, room * distinct)]
    count_in, count_out = _counts(case, members)
    found = []
    for k in range(distinct):
        target = env.image.claim(f"output of call {k}", places[2 * k + 1], count_out, dtype)
        source = target
        if not case.in_place:
            source = env.image.claim(f"input of call {k}", places[2 * k], count_in, dtype)
        found.append((source, target))
    return [found[k % distinct] for k in range(case.calls)]


def _counts(case: CollectiveCase, members: int) -> tuple[int, int]:
    """Elements that input and output take, with their padding."""
    inputs, outputs = shapes_of(case.op, case.m, case.n, members)
    return _elements(inputs, *_input_layout(case)), _elements(outputs, *_output_layout(case))


def _input_layout(case: CollectiveCase) -> tuple[int, bool]:
    """Padding, and whether it is transposed."""
    return case.in_pad, case.turned in ("in", "both")


def _output_layout(case: CollectiveCase) -> tuple[int, bool]:
    return _input_layout(case) if case.in_place else (case.out_pad, case.turned in ("out", "both"))


def _elements(shape: tuple[int, int], pad: int, turned: bool) -> int:
    rows, columns = reversed(shape) if turned else shape
    return rows * (columns + pad)


def _matrix(flat: torch.Tensor, shape: tuple[int, int], pad: int, turned: bool) -> torch.Tensor:
    rows, columns = shape
    if turned:
        return flat.view(columns, rows + pad)[:, :rows].t()
    return flat.view(rows, columns + pad)[:, :columns]


def _staged(env: Env, call: Call) -> Call:
    """The same call with its values where the device is, so that enqueueing them waits for nothing."""
    device = env.device.torch_device
    moved = {name: value.to(device) for name in ("given", "before") if (value := getattr(call, name)) is not None}
    return replace(call, **moved)
