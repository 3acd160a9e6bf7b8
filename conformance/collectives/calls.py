"""Calls of collectives: their tensors on the heap, torch.distributed's result for the same inputs, and how a case runs.

A rank that is in no group of the case makes no call, and its heap must stay unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.code import check_code
from conformance.collectives.operations import ALWAYS, Inputs, described
from fixtures.findings import Findings
from fixtures.worker import Env
from harness.cases import FURTHER, chunks_of, contribution, members_of, of_name, payload, rounds_needed, size_of
from harness.oracles import Region, bool_all
from harness.oracles.heap import starts

FIRST = 1024
"""Byte of the arena from which the tensors of calls are placed."""

PADDING = 8
BOOL_ROUNDS = 3
"""Maximum of rounds for booleans: each encodes one bit of its origin, and running all the rounds would take too
long."""


@dataclass(frozen=True)
class Party:
    """The group of a case that contains this rank.

    ``members`` are global ranks, in order; empty if this rank is in no group. ``handle`` is None for the world.
    ``root`` is a global rank. ``place`` is this rank's index among the members.
    """

    members: tuple[int, ...]
    handle: Any
    root: int
    place: int

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(frozen=True)
class Call:
    """One call on this rank.

    ``given`` is the content of the input, ``wanted`` the expected content of the output; None if this rank has no input
    or receives no result. ``before`` is the content of the output before the call; None means poison. If each member
    owns a part of the result, ``wanted`` equals ``before`` in the other members' parts.
    """

    party: Party
    input: torch.Tensor | None
    output: torch.Tensor | None
    source: Region
    target: Region
    given: torch.Tensor | None
    wanted: torch.Tensor | None
    before: torch.Tensor | None


def run(env: Env, case: CollectiveCase) -> Any:
    """Run a case on this rank and return the first difference: the rank function of most tests of collectives."""
    mismatch = None
    for round_ in range(rounds_of(case, env.world_size)):
        findings = Findings(env.rank)
        calls = prepare(env, case, round_)
        env.settle()
        outputs = perform(env, case, calls, findings=findings)
        env.settle()
        mismatch = judge(env, case, calls, outputs, findings) or mismatch
    party = party_of(env, case)
    return mismatch or (check_code(env, case, party.place, party.size) if env.fault is None else None)


def moves(ranks: int, case: CollectiveCase) -> bool:
    """Return whether elements of the case reach another rank."""
    return case.m > 0 and case.n > 0 and max(map(len, chunks_of(case.group, ranks))) > 1


def rounds_of(case: CollectiveCase, ranks: int) -> int:
    """Return the number of rounds after which every moved element has been distinguished from every other one."""
    op = described(case.op)
    if op.reduces:
        return 1
    (rows, columns), _ = op.shapes(case.m, case.n, ranks)
    needed = rounds_needed(_payload_dtype(case.dtype), case.calls * ranks * rows * columns)
    return min(needed, BOOL_ROUNDS) if case.dtype == "bool" else needed


def _payload_dtype(dtype: str) -> str:
    """Return the element type of the payloads for ``dtype``: an integer type for types that are only moved."""
    return f"int{8 * size_of(dtype)}" if dtype in FURTHER and dtype != "bool" else dtype


def party_of(env: Env, case: CollectiveCase) -> Party:
    """Create the groups of the case, on every rank, and return this rank's group."""
    members = members_of(case.group, env.rank, env.world_size)
    handle = env.group(members, chunks_of(case.group, env.world_size))
    if handle is not None:
        # Older releases of torch sort the ranks of a group.
        members = tuple(dist.get_process_group_ranks(handle))
    if not members:
        return Party((), None, -1, -1)
    return Party(members, handle, members[case.root % len(members)], members.index(env.rank))


def prepare(env: Env, case: CollectiveCase, round_: int = 0) -> list[Call]:
    """Poison the heap, fill the inputs and compute the expected outputs.

    If all calls use the same tensors, only the first call's input is filled.
    """
    env.image.reset()
    party = party_of(env, case)
    if not party.members:
        return []
    calls = [_call(env, case, party, *regions, k, round_) for k, regions in enumerate(_regions(env, case, party.size))]
    for k, call in enumerate(calls):
        if not (case.reuse and k):
            fill(call)
    return calls


def prepare_further(env: Env, case: CollectiveCase, earlier: CollectiveCase) -> list[Call]:
    """Prepare the calls of another case, with tensors of their own after those of ``earlier``, which ``prepare`` has
    prepared."""
    party = party_of(env, case)
    if not party.members:
        return []
    regions = _regions(env, case, party.size, _places(env, earlier, FIRST)[-1], "further case: ")
    calls = [_call(env, case, party, *pair, k, 0) for k, pair in enumerate(regions)]
    for call in calls:
        fill(call)
    return calls


def prepare_each(env: Env, cases: Mapping[str, CollectiveCase]) -> dict[str, list[Call]]:
    """Poison the heap, and prepare one call of each case, with tensors of its own. The keys name the calls.

    A rank that is in no group of a case has no call of it.
    """
    env.image.reset()
    prepared: dict[str, list[Call]] = {}
    start = FIRST
    for k, (name, case) in enumerate(cases.items()):
        party = party_of(env, case)
        prepared[name] = []
        if party.members:
            [regions] = _regions(env, case, party.size, start, f"{name}: ")
            prepared[name] = [_call(env, case, party, *regions, k, 0)]
            fill(prepared[name][0])
        start = _places(env, case, start)[-1]
    return prepared


def perform(
    env: Env, case: CollectiveCase, calls: list[Call], ccl: Any = None, findings: Findings | None = None
) -> list[torch.Tensor | None]:
    """Make the calls and return a copy of each call's output. Note in ``findings`` a changed Config.

    After an asynchronous call the copy is enqueued on the stream; after a call that waits it is made at once.
    """
    outputs: list[torch.Tensor | None] = []
    handles = []
    ready = [_staged(env, call) for call in calls]
    with env.acting():
        settings = config(env, case, calls[0].party.size) if calls else None
        fields = env.in_library(_fields, settings)
        for k, call in enumerate(calls):
            env.late(case.skewed, case.skew_ms)
            if case.reuse and k:
                fill(ready[k])
            handles.append(invoke(env, case, call, settings, ccl))
            outputs.append(None if call.output is None else copied(call.output, enqueued=case.async_op))
        for handle in handles:
            if case.async_op and handle is not None:
                handle.wait()
        if findings is not None:
            changed = set(env.in_library(_fields, settings)) - set(fields)
            findings.equal("fields that the calls changed in the Config that was passed", sorted(changed), [])
    return outputs


def _fields(env: Env, settings: Any) -> list[str]:
    return [] if settings is None else [f"{name}={value!r}" for name, value in vars(settings).items()]


def passed(env: Env, case: CollectiveCase, calls: list[Call]) -> list[torch.Tensor]:
    """Return the tensors of the calls as all members together pass them, each once."""
    tensors = {}
    for call in calls:
        inputs, outputs = described(case.op).shapes(case.m, case.n, call.party.size)
        tensors[call.source.start] = _matrix(env.image.tensor(call.source), inputs, *_input_layout(case))
        tensors[call.target.start] = _matrix(env.image.tensor(call.target), outputs, *_output_layout(case))
    return list(tensors.values())


def invoke(env: Env, case: CollectiveCase, call: Call, settings: Any, ccl: Any = None, **more: Any) -> Any:
    """Call the library's op once, on the instance under test or on another instance's ``ccl``. ``more``: further
    arguments."""
    op = described(case.op)
    tensors = (call.output,) if op.in_place == ALWAYS else (call.output, call.input)
    if op.root:
        more[op.root] = call.party.root
    if op.reduces:
        more["op"] = getattr(env.under_test.module.ccl.ReduceOp, case.reduce.upper())
    function = getattr(ccl or env.iris.ccl, case.op)
    return function(*tensors, group=call.party.handle, async_op=case.async_op, config=settings, **more)


def config(env: Env, case: CollectiveCase, members: int) -> Any:
    """Return the case's Config, or None."""
    if case.default:
        return None
    more: dict[str, Any] = {}
    if case.variant:
        more[f"{case.op}_variant"] = case.variant
    if case.protocol and "protocol" in env.under_test.config_fields():
        more["protocol"] = case.protocol
    if described(case.op).has_distribution:
        more.update(all_reduce_distribution=case.distribution, all_reduce_num_rings=case.rings)
    return env.under_test.config(
        block_size_m=case.block_m, block_size_n=case.block_n, swizzle_size=case.swizzle,
        comm_sms=case.comm_sms * (members if case.variant == "partitioned" else 1), num_warps=env.warps(case.warps),
        use_gluon=case.gluon, threads_per_warp=env.device.lanes,
        num_xcds=2,
        chunk_size=2,  # Fixed: the default depends on comm_sms, and each value needs another compiled kernel.
        **more,
    )  # fmt: skip


def fill(call: Call) -> None:
    """Write the contents that a call's tensors have before the call, on the current stream."""
    if call.before is not None and call.output is not None:
        call.output.copy_(call.before)
    if call.given is not None and call.input is not None:
        call.input.copy_(call.given)


def expect(env: Env, case: CollectiveCase, call: Call) -> None:
    """Set the expected heap: the input is unchanged, the output has the wanted result, and padding stays poison."""
    inputs, outputs = described(case.op).shapes(case.m, case.n, call.party.size)
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
    findings: Findings | None = None,
) -> Any:
    """Return the first difference: an earlier one in ``findings``, then of each call's output, then of the whole heap.

    Every rank of the world must call it. If a rank has a fault, that fault is the result, and nothing is compared.
    """
    findings = findings or Findings(env.rank)
    if not bool_all(env.fault is None):
        return findings.first
    for k, (call, output) in enumerate(zip(calls, outputs, strict=True)):
        if call.wanted is not None:
            earlier, name = findings.first, f"output of call {k}, copied directly after it"
            findings.same(name, output, call.wanted, _before(env, case, call))
            if findings.first is not earlier:
                _locate(env, call, findings.first)
        expect(env, case, call)
    return findings.first or env.image.difference()


def _locate(env: Env, call: Call, difference: Any) -> None:
    """Add the byte of the arena to a difference of the output."""
    if call.output is not None and "detail" in difference:
        place = np.unravel_index(difference["index"], tuple(call.output.shape))
        address = call.output[place].data_ptr() - env.image.arena.data_ptr()
        difference["detail"]["byte"] = int(address)


def _before(env: Env, case: CollectiveCase, call: Call) -> torch.Tensor | None:
    """Return the content of the output before the call; None in place, where a rank's own part may be a result."""
    if case.in_place:
        return None
    if call.before is not None:
        return call.before
    _, outputs = described(case.op).shapes(case.m, case.n, call.party.size)
    return _matrix(env.image.unwritten(call.target), outputs, *_output_layout(case))


def copied(output: torch.Tensor, *, enqueued: bool) -> torch.Tensor:
    """Return a copy, enqueued on the current stream or made at once on a stream that waits for no other work."""
    if enqueued or not output.is_cuda:
        return output.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        copy = output.clone()
    stream.synchronize()
    return copy


def opposite(values: torch.Tensor) -> torch.Tensor:
    """Return elements none of whose bits are those of ``values``; for booleans the other boolean, since a byte other
    than 0 and 1 is none: torch may turn it into 1 where it copies one."""
    if values.dtype == torch.bool:
        return ~values
    return (~values.flatten().view(torch.uint8)).view(values.dtype).view(values.shape)


def _call(env: Env, case: CollectiveCase, party: Party, source: Region, target: Region, k: int, round_: int) -> Call:
    op = described(case.op)
    inputs, outputs = op.shapes(case.m, case.n, party.size)
    mine = _values(env, case, party, inputs, k, round_)
    given = Inputs(mine, case.reduce, party.root, party.handle, party.size)
    wanted = op.reference(given) if mine.numel() else mine.new_empty(outputs)
    root = env.rank == party.root
    gives = op.passes("input", is_root=root)
    gets = root or op.results_at == "all"
    input_ = _matrix(env.image.tensor(source), inputs, *_input_layout(case))
    output = _matrix(env.image.tensor(target), outputs, *_output_layout(case))
    before = None
    if op.owned is not None:
        before = mine if case.in_place else opposite(wanted)
        wanted = torch.where(op.owned(case, party.place, party.size), wanted, before)
    return Call(
        party,
        input_ if gives else None,
        output if op.passes("output", is_root=root) else None,
        source,
        target,
        mine if gives else None,
        wanted if gets else None,
        before,
    )


def _values(env: Env, case: CollectiveCase, party: Party, shape: tuple[int, int], k: int, round_: int) -> torch.Tensor:
    count = shape[0] * shape[1]
    op = described(case.op)
    if op.reduces:
        flat = contribution(
            case.reduce, case.dtype, count,
            member=party.place, members=party.size, repetition=k, wide=op.rounds_once(case),
        )  # fmt: skip
    else:
        flat = payload(
            _payload_dtype(case.dtype), count, rank=env.rank, ranks=env.world_size, round_=round_, repetition=k
        )
        flat = flat.view(of_name(case.dtype))
    return flat.view(shape)


def _regions(
    env: Env, case: CollectiveCase, members: int, first: int = FIRST, prefix: str = ""
) -> list[tuple[Region, Region]]:
    """Return the regions of input and output of each call, from byte ``first`` on; ``prefix`` begins their names."""
    dtype = of_name(case.dtype)
    places = [place + case.shift * dtype.itemsize for place in _places(env, case, first)]
    count_in, count_out = _counts(case, members)
    regions = []
    for k in range(distinct := _distinct(case)):
        target = env.image.claim(f"{prefix}output of call {k}", places[2 * k + 1], count_out, dtype)
        source = target
        if not case.in_place:
            source = env.image.claim(f"{prefix}input of call {k}", places[2 * k], count_in, dtype)
        regions.append((source, target))
    return [regions[k % distinct] for k in range(case.calls)]


def _places(env: Env, case: CollectiveCase, first: int) -> list[int]:
    """Return the offsets of input and output of each call, and that of the first byte after them.

    They are the same on every rank, for any group size and any padding up to ``PADDING``.
    """
    largest = max(len(chunk) for chunk in chunks_of(case.group, env.world_size))
    roomy = replace(case, in_pad=max(case.in_pad, PADDING), out_pad=max(case.out_pad, PADDING))
    room = [count * of_name(case.dtype).itemsize for count in _counts(roomy, largest)]
    room[0] *= not case.in_place
    return starts(first, [*room * _distinct(case), 0])


def _distinct(case: CollectiveCase) -> int:
    """Return the number of calls that have tensors of their own."""
    return 1 if case.reuse else case.calls


def _counts(case: CollectiveCase, members: int) -> tuple[int, int]:
    """Return the number of elements of input and output, padding included."""
    inputs, outputs = described(case.op).shapes(case.m, case.n, members)
    return _elements(inputs, *_input_layout(case)), _elements(outputs, *_output_layout(case))


def _input_layout(case: CollectiveCase) -> tuple[int, bool]:
    """Return the input's padding, and True if it is stored transposed."""
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
    """Return the call with its values on the device, so that enqueueing copies of them does not block."""
    device = env.device.torch_device
    moved = {name: value.to(device) for name in ("given", "before") if (value := getattr(call, name)) is not None}
    return replace(call, **moved)
