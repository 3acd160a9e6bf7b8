"""What the all_gather requirements have in common: tensors on the heap, and torch.distributed's all_gather beside
them."""

from dataclasses import dataclass
from typing import Any

import torch

from fixtures.worker import Env
from harness.cases import GatherCase, chunks_of, members_of, of_name, payload
from harness.oracles import Region, gathered
from harness.oracles.heap import starts


@dataclass(frozen=True)
class Call:
    """One call's tensors on the heap, the regions that they lie in, and what torch.distributed gives for the input."""

    input: torch.Tensor
    output: torch.Tensor
    source: Region
    target: Region
    wanted: torch.Tensor


def prepare(env: Env, case: GatherCase, round_: int) -> tuple[list[Call], Any]:
    """Poisoned heap, filled inputs, references; returns the calls and the process group (None: the world)."""
    members = members_of(case.group, env.rank, env.world_size)
    group = env.group(members, chunks_of(case.group, env.world_size))
    env.image.reset()
    calls: list[Call] = []
    for k, source, target in _places(env, case, len(members)):
        mine = payload(
            case.dtype, case.m * case.n, rank=env.rank, ranks=env.world_size, round_=round_, repetition=k
        ).view(case.m, case.n)
        calls.append(
            Call(
                _rows(env.image.tensor(source), case.m, case.n, case.in_pad),
                _rows(env.image.tensor(target), len(members) * case.m, case.n, case.out_pad),
                source,
                target,
                gathered(mine, group, len(members)),
            )
        )
        if not (case.reuse and k):
            fill(env, calls[-1], mine, case)
    return calls, group


def fill(env: Env, call: Call, mine: torch.Tensor, case: GatherCase) -> None:
    """Put this rank's rows into a call's input; they, and the padding beside them, must be there at the end."""
    call.input.copy_(mine)
    _rows(env.image.expected(call.source), case.m, case.n, case.in_pad).copy_(mine)


def expect(env: Env, call: Call, case: GatherCase) -> None:
    """The output must hold the reference; its padding stays poison."""
    _rows(env.image.expected(call.target), call.wanted.shape[0], case.n, case.out_pad).copy_(call.wanted)


def _places(env: Env, case: GatherCase, members: int) -> list[tuple[int, Region, Region]]:
    dtype = of_name(case.dtype)
    count_in, count_out = case.m * (case.n + case.in_pad), members * case.m * (case.n + case.out_pad)
    distinct = 1 if case.reuse else case.calls
    places = starts(1024, [count_in * dtype.itemsize, count_out * dtype.itemsize] * distinct)
    regions = []
    for k in range(distinct):
        source = env.image.claim(f"input of call {k}", places[2 * k], count_in, dtype)
        target = env.image.claim(f"output of call {k}", places[2 * k + 1], count_out, dtype)
        regions.append((k, source, target))
    return regions + [(k, regions[0][1], regions[0][2]) for k in range(distinct, case.calls)]


def _rows(flat: torch.Tensor, m: int, n: int, pad: int) -> torch.Tensor:
    return flat.view(m, n + pad)[:, :n]
