"""A rank's side of a sequence: its open instances, and the comparison of all their memory with the model.

Steps run one after the other, and after each the ranks are synchronised without the library, so that the first step
that leaves wrong memory is the one that is reported. Collectives that follow one another on one instance are an
exception: they are queued with no synchronisation in between, since what one call leaves in a workspace can only harm
the next one there. Each has its own tensors, and its output is copied directly after it, so the report still names it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch

from conformance.collectives.calls import expect, perform, prepare_each
from conformance.collectives.cases import CollectiveCase
from conformance.sequences.cases import SequenceCase, Step, arguments_of, described
from conformance.sequences.model import Model
from conformance.sequences.rules import RULES
from conformance.support.instances import OtherInstance, release, standing_in
from fixtures.findings import Findings
from fixtures.worker import Env
from harness import garbage
from harness.cases import chunks_of, members_of
from harness.oracles import HeapImage, bool_all

QUEUED = 4
"""Maximum of collectives that are queued with no synchronisation."""


def arena_bytes(ranks: int) -> int:
    """Return the size of the part of an instance's heap in which collectives have their tensors."""
    return (1 << 19) * max(1, -(-ranks // 4))


def heap_bytes(ranks: int) -> int:
    """Return the size of an instance's heap: the arena, and room for blocks and for the library's own memory."""
    return arena_bytes(ranks) + (1 << 19)


class Opened(OtherInstance):
    """An open instance. ``tensors``: its live blocks by number; ``image``: the part that collectives use."""

    def __init__(self, env: Env, iris: Any) -> None:
        super().__init__(env, iris)
        self.tensors: dict[int, torch.Tensor] = {}
        self.image = HeapImage(iris.empty(arena_bytes(env.world_size), dtype=torch.uint8), env.rank)
        self.image.reset()


class World:
    """The instances of a sequence on this rank, and the model of what they hold on every rank."""

    def __init__(self, env: Env) -> None:
        self.env, self.model, self.findings = env, Model(env.world_size), Findings(env.rank)
        self.keep = torch.ones(64, dtype=torch.uint8, device=env.device.torch_device)
        self.opened: dict[int, Opened] = {}
        self._done: set[tuple[Step, ...]] = set()

    def open(self, instance: int, allocator: str) -> None:
        """Make the instance of that number. Collective."""
        iris = self.env.under_test.iris(heap_bytes(self.env.world_size), allocator)
        self.opened[instance] = Opened(self.env, iris)

    def group(self, kind: str) -> tuple[tuple[int, ...], Any]:
        """Return this rank's group of that kind: its members, none if it is in no group, and its handle."""
        members = members_of(kind, self.env.rank, self.env.world_size)
        return members, self.env.group(members, chunks_of(kind, self.env.world_size))

    def wanted(self, instance: int, block: int) -> torch.Tensor:
        """Return what a block holds on this rank after the present step."""
        return self.model.instances[instance].blocks[block].values[self.env.rank]

    def run(self, steps: tuple[Step, ...]) -> Any:
        """Execute the steps up to the first one that leaves wrong memory, and return the first difference."""
        garbage.set_aside()
        with self.env.acting():
            self.open(0, "torch")
        for batch in batches(steps):
            if not self._agree():
                break
            label = f"step {self.model.turn}, {described(batch[0])}"
            before = self._room()
            if batch[0][0] == "collective":
                self._queue(batch)
            else:
                self._step(batch[0])
            self._compare(label)
            rule = RULES[batch[0][0]]
            if batch in self._done and not rule.moves_room:
                self.findings.equal(f"offset up to which the heaps are used, after {label}", self._room(), before)
            self._done.add(batch)
            self.model.turn += len(batch)
        self._agree()
        while self.opened:
            release(self.opened.popitem()[1].iris)
        gc.collect()
        self.env.settle()
        return self.findings.first

    def _agree(self) -> bool:
        """Wait for all ranks; return whether every rank can go on."""
        return bool(bool_all(self.env.fault is None and self.findings.first is None))

    def _step(self, step: Step) -> None:
        rule, arguments = RULES[step[0]], arguments_of(step)
        rule.apply(self.model, **arguments)
        with self.env.acting():
            rule.act(self, **arguments)

    def _queue(self, steps: tuple[Step, ...]) -> None:
        """Make the calls of collectives and compare the whole arena, their outputs first."""
        calls = [arguments_of(step) for step in steps]
        opened = self.opened[calls[0].pop("instance")]
        cases = {
            f"step {self.model.turn + place}": CollectiveCase(**{k: v for k, v in call.items() if k != "instance"})
            for place, call in enumerate(calls)
        }
        with standing_in(self.env, opened.iris, opened.image):
            prepared = prepare_each(self.env, cases)
            self.env.settle()
            outputs = {name: perform(self.env, case, prepared[name]) for name, case in cases.items()}
            self.env.settle()
            if not self._agree():
                return  # a call that raised has no outputs
            for name, case in cases.items():
                for call, output in zip(prepared[name], outputs[name], strict=True):
                    if call.wanted is not None:
                        self.findings.same(
                            f"output of {name}, {case.op}, copied directly after it", output, call.wanted
                        )
                    expect(self.env, case, call)

    def _compare(self, label: str) -> None:
        """Compare all memory of all open instances with the model, unless a rank has a fault: that is the result."""
        if not self._agree():
            return
        for number, opened in self.opened.items():
            for block, tensor in opened.tensors.items():
                subject = f"block of step {block} in instance {number}, after {label}"
                self.findings.same(subject, tensor, self.wanted(number, block))
            self.findings.first = self.findings.first or opened.image.difference()

    def _room(self) -> list[int]:
        return [int(opened.iris.heap.allocator.heap_offset) for opened in self.opened.values()]


def batches(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Return the steps one by one, except that up to ``QUEUED`` collectives on one instance form one batch."""

    def kind(numbered: tuple[int, Step]) -> Any:
        number, (rule, arguments) = numbered
        return ("collective", dict(arguments)["instance"]) if rule == "collective" else number

    for _, grouped in groupby(enumerate(steps), kind):
        run = tuple(step for _, step in grouped)
        for start in range(0, len(run), QUEUED):
            yield run[start : start + QUEUED]


def run(env: Env, case: SequenceCase) -> Any:
    """Run a sequence on this rank: the rank function of all requirements about sequences."""
    return World(env).run(case.steps)
