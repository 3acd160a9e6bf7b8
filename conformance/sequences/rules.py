"""The rules of sequences. A rule is one class, listed in ``RULES``.

``draw`` runs in the controller: it returns the arguments of a step that is possible in the model's state, or None. It
chooses with ``pick(options)``, where the simplest option is the first. ``apply`` changes the model, in the controller
and on every rank. ``act`` makes the library's calls on a rank, after ``apply``; it compares nothing, since the runner
compares all memory with the model after each step.

The ranks run a small fixed set of kernels, so that a long sequence compiles no more than a short one. A step that moves
data ends with a barrier of the library, and one member of its group is late, so that a barrier which does not wait
leaves wrong memory behind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from conformance.atomics.cases import AtomicCase
from conformance.atomics.history import launch_atomic
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.sequences.model import Block, InstanceModel, Model, pattern
from conformance.support.instances import preset_barrier, release
from harness.cases import members_of

T = TypeVar("T")
Arguments = dict[str, Any]

COUNTS = (1, 256, 255, 257, 64, 512)
"""Elements of an allocation. Allocations of 256 and 512 elements fill whole multiples of the alignment, so that
neighbours touch."""

LATE_MS = 4
MOST_BLOCKS, MOST_INSTANCES = 6, 3
BARRIERS = ("barrier", "device_barrier")


class Pick:
    """Chooser of options by a list of codes: code 0, and any code beyond the end, chooses the first option."""

    def __init__(self, codes: Sequence[int]) -> None:
        self._codes = iter(codes)

    def __call__(self, options: Sequence[T]) -> T:
        return options[next(self._codes, 0) % len(options)]


class Rule:
    """A kind of step. ``needs`` are the capabilities without which no such step is drawn."""

    needs: tuple[str, ...] = ()
    moves_room = False
    """True if a step may change the room that is left on the heaps, or which heaps there are."""

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        """Return the arguments of a step that is possible now, or None."""
        raise NotImplementedError

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        """Change the model as the step changes memory."""

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        """Make the calls of the step on this rank."""
        raise NotImplementedError


class Allocate(Rule):
    """Allocate a block, the same on every rank, and fill it."""

    needs = ("Iris.empty",)
    moves_room = True

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        free = [number for number, one in model.instances.items() if len(one.blocks) < MOST_BLOCKS]
        return {"instance": pick(free), "count": pick(COUNTS)} if free else None

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        model.instances[instance].blocks[model.turn] = Block(pattern(model.turn, model.ranks, arguments["count"]))

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        opened = world.opened[instance]
        tensor = opened.iris.empty(arguments["count"], dtype=torch.int32)
        opened.tensors[world.model.turn] = tensor
        tensor.copy_(world.wanted(instance, world.model.turn))


class Free(Rule):
    """Free a block: the library may give its memory to a later one, and to nothing else."""

    needs = ("Iris.free",)
    moves_room = True

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        return _block(model, pick)

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        del model.instances[instance].blocks[arguments["block"]]

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        opened = world.opened[instance]
        opened.iris.free(opened.tensors.pop(arguments["block"]))


class Put(Rule):
    """Each member of a group puts the first elements of one block into another block, or a later part of the same one,
    of the member ``shift`` places after it."""

    needs = ("IrisDeviceCtx.put",)
    op = "put"

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        source = _block(model, pick)
        if source is None:
            return None
        blocks = model.instances[source["instance"]].blocks
        first = blocks[source["block"]].count
        # Within one block, the elements that are written begin where the elements that are read end, or later.
        targets = [number for number in blocks if number != source["block"] or first > 1]
        if not targets:
            return None
        target = pick(targets)
        same = target == source["block"]
        limit = first // 2 if same else min(first, blocks[target].count)
        count = pick(sorted({1, limit, max(1, limit - 1), max(1, limit // 2)}))
        end = blocks[target].count - count
        starts = sorted({count, end} if same else {0, end, min(1, end), min(count, end)})
        return {
            **source, "target": target, "count": count, "start": pick(starts), **_actors(model, pick),
            "shift": pick((1, 0, 2)),
        }  # fmt: skip

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        blocks, count, start = model.instances[instance].blocks, arguments["count"], arguments["start"]
        source, target = blocks[arguments["block"]].values, blocks[arguments["target"]].values
        given = source[:, :count].clone()
        for rank in range(model.ranks):
            members = members_of(arguments["group"], rank, model.ranks)
            if rank in members:
                peer = _after(members, rank, arguments["shift"])
                writer, reader = self._ends(rank, peer)
                target[reader, start : start + count] = given[writer]
        _count_barrier(model, instance, arguments)

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        opened, count = world.opened[instance], arguments["count"]
        source, target = opened.tensors[arguments["block"]], opened.tensors[arguments["target"]]
        case = TransferCase(dtype="int32", n=count)

        def move(members: tuple[int, ...]) -> None:
            peer = _after(members, world.env.rank, arguments["shift"])
            launch(opened, TRANSFERS[self.op], case, source, target[arguments["start"] :], world.keep, peer)

        _act_at_once(world, opened, arguments, move)

    @staticmethod
    def _ends(rank: int, peer: int) -> tuple[int, int]:
        """Return the ranks whose memory is read and written, for the caller's rank and its peer."""
        return rank, peer


class Get(Put):
    """Each member of a group gets the first elements of the block of the member ``shift`` places after it."""

    needs = ("IrisDeviceCtx.get",)
    op = "get"

    @staticmethod
    def _ends(rank: int, peer: int) -> tuple[int, int]:
        return peer, rank


class Add(Rule):
    """Every member of a group adds its rank + 1 to the first elements of one member's block, all at the same time."""

    needs = ("IrisDeviceCtx.atomic_add",)

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        cells = _block(model, pick)
        if cells is None:
            return None
        count = model.instances[cells["instance"]].blocks[cells["block"]].count
        return {**cells, "cells": pick(sorted({1, min(count, 64), min(count, 3)})), **_actors(model, pick),
                "at": pick((0, 1))}  # fmt: skip

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        values = model.instances[instance].blocks[arguments["block"]].values
        for rank in range(model.ranks):
            members = members_of(arguments["group"], rank, model.ranks)
            if rank in members:
                target = members[arguments["at"] % len(members)]
                values[target, : arguments["cells"]] += rank + 1
        _count_barrier(model, instance, arguments)

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        opened, cells = world.opened[instance], arguments["cells"]
        case = AtomicCase(op="add", dtype="int32", n=cells, cells=cells, spt=1, scope="sys")
        numbers = torch.arange(case.block, dtype=torch.int32, device=world.keep.device)
        values = torch.full_like(numbers, world.env.rank + 1)
        olds = torch.zeros_like(numbers)

        def add(members: tuple[int, ...]) -> None:
            target = members[arguments["at"] % len(members)]
            launch_atomic(
                opened, case, opened.tensors[arguments["block"]], numbers, values, values, world.keep, olds, target
            )  # fmt: skip

        _act_at_once(world, opened, arguments, add)


class Wrap(Rule):
    """Set the counts of a group's device_barrier so that they pass 2^31 in the next calls but one."""

    needs = ("Iris.device_barrier",)

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        counting = [(number, group) for number, one in model.instances.items() for group in sorted(one.counting)]
        if not counting:
            return None
        instance, group = pick(counting)
        return {"instance": instance, "group": group}

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        members, handle = world.group(arguments["group"])
        if members:
            preset_barrier(world.opened[instance].iris, handle, 2**31 - 2)


class Open(Rule):
    """Make a further instance."""

    needs = ("iris",)
    moves_room = True

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        free = [number for number in range(MOST_INSTANCES) if number not in model.instances]
        return {"instance": free[0], "allocator": pick(("torch", "vmem"))} if free else None

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        model.instances[instance] = InstanceModel()

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        world.open(instance, arguments["allocator"])


class Close(Rule):
    """Close an instance while others stay in use; a library without ``close`` drops it."""

    needs = ("iris",)
    moves_room = True

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        return {"instance": pick(sorted(model.instances))} if len(model.instances) > 1 else None

    def apply(self, model: Model, instance: int, **arguments: Any) -> None:
        del model.instances[instance]

    def act(self, world: Any, instance: int, **arguments: Any) -> None:
        release(world.opened.pop(instance).iris)
        gc.collect()


class Collective(Rule):
    """Call a collective. Calls that follow one another on one instance are queued with nothing in between; the runner
    makes them: see ``world``."""

    needs = ("ccl.Config",)
    moves_room = True  # a library may make a workspace for each call

    def draw(self, model: Model, pick: Pick) -> Arguments | None:
        if not model.calls:
            return None
        case = pick(model.calls)
        changes = {"instance": pick(sorted(model.instances)), "m": pick((case.m, 1, 2 * case.m)),
                   "n": pick((case.n, 1)), "comm_sms": max(case.rings, pick((case.comm_sms, 1, 3)))}  # fmt: skip
        fields = {name: value for name, value in vars(case).items() if value != vars(type(case)()).get(name)}
        return {**fields, **changes}


RULES: dict[str, Rule] = {
    "allocate": Allocate(),
    "put": Put(),
    "get": Get(),
    "add": Add(),
    "free": Free(),
    "wrap": Wrap(),
    "collective": Collective(),
    "open": Open(),
    "close": Close(),
}

MEMORY = ("allocate", "put", "get", "add", "free", "wrap")
COLLECTIVES = ("collective",)
ALL = tuple(RULES)


# -- parts of rules ----------------------------------------------------------------------------------------------------


def _block(model: Model, pick: Pick) -> Arguments | None:
    """Pick a live block: arguments instance and block."""
    blocks = [(number, block) for number, one in model.instances.items() for block in one.blocks]
    return dict(zip(("instance", "block"), pick(blocks), strict=True)) if blocks else None


def _actors(model: Model, pick: Pick) -> Arguments:
    """Pick the group that acts, and the barrier that ends the step."""
    return {"group": pick(model.groups), "by": pick(BARRIERS)}


def _after(members: tuple[int, ...], rank: int, shift: int) -> int:
    return members[(members.index(rank) + shift) % len(members)]


def _count_barrier(model: Model, instance: int, arguments: Arguments) -> None:
    if arguments["by"] == "device_barrier":
        model.instances[instance].counting.add(arguments["group"])


def _act_at_once(world: Any, opened: Any, arguments: Arguments, act: Callable[[tuple[int, ...]], None]) -> None:
    """Call ``act(members)`` on the members of the group, one of them late, and then the barrier of the group."""
    members, handle = world.group(arguments["group"])
    if members:
        world.env.late(members[world.model.turn % len(members)], LATE_MS)
        act(members)
        getattr(opened.iris, arguments["by"])(group=handle)
