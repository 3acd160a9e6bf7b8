"""Collectives of an adapter, in every form that it offers, against torch.distributed on the same inputs."""

from typing import NamedTuple

import torch

from conformance.calls.cases import CallCase
from fixtures.adapters import Unavailable
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name, size_of
from harness.emulator.watch import Lazy, Seeded
from harness.errors import UsageError
from harness.oracles import bool_all, gathered
from harness.oracles.heap import starts

DTYPES = ("fp32", "bf16")
"""Element types that every adapter's collectives take."""


HELD, LAUNCHES = 4, 4
"""Most ranks that are held back before a call, and the launches of a call before which a rank is held back."""


class Turn(NamedTuple):
    """One of several calls that follow each other at once. The rank ``held``, if there is one, waits before it makes
    the call, or before that launch of the call (from 1), until the other ranks can do nothing more without it."""

    held: int = -1
    launch: int = 0

    def __str__(self) -> str:
        place = f"its launch {self.launch} of the call" if self.launch else "its call"
        return "" if self.held < 0 else f", with rank {self.held} held back before {place}"


def run(env, case, op):
    """Run every form of ``op`` on this rank, and return the first difference of the whole heap."""
    forms = {name: call for name, call in env.adapter.collectives().items() if name.partition(":")[0] == op}
    judged = 0
    for name, call in sorted(forms.items()):
        calls = _Calls(env, case, op, name, call)
        right = calls.run([Turn()])  # alone: it compiles, and may raise Unavailable
        if not calls.available:
            continue
        judged += 1
        right = right and calls.run(_turns(env, case, calls.launches))
        if env.can_weaken:
            for choices in (Lazy(case.data), Seeded(case.data)):
                with env.weak_memory(choices):
                    right = right and calls.run([Turn()], f", in mode weak ({choices})")
        if not right:
            return calls.mismatch
    if not judged:
        raise UsageError(f"this machine has none of the forms of {op} that the adapter offers: {', '.join(forms)}")
    return None


def _turns(env, case, launches):
    """Return the turns after the first one: undisturbed, then with ranks held back. After the last of these comes an
    undisturbed turn, whose data arrive too early if a rank did not wait for the one held back."""
    ranks = env.world_size
    if ranks == 1:
        return [Turn()] * (case.calls - 1)
    before = [Turn((case.late + number) % ranks) for number in range(min(ranks, HELD))]
    inside = [Turn(case.late, launch) for launch in range(2, min(launches, LAUNCHES) + 1)]
    return [Turn()] * (case.calls - 1) + before + inside + [Turn()]


class _Calls:
    """Calls of one form on the same tensors, with other data each time.

    ``available``: whether the machine has the form; ``launches``: the most kernels that a call launched on any rank;
    ``mismatch``: the first difference on this rank. All are of the calls that were run.
    """

    def __init__(self, env, case, op, name, call):
        self.env, self.op, self.name, self.call = env, op, name, call
        self.available, self.launches, self.mismatch = True, 0, None
        self.dtype, ranks = of_name(case.dtype), env.world_size
        unit = max(env.adapter.granule // size_of(case.dtype), 1)
        self.part = -(-case.n // unit) * unit
        self.given = self.part * ranks if op in ("reduce_scatter", "all_to_all") else self.part
        received = self.part * ranks if op in ("all_gather", "all_to_all") else self.part
        source, target = starts(1024, [self.given * self.dtype.itemsize, received * self.dtype.itemsize])
        self.number = case.data
        env.image.reset()
        self.source = env.image.claim(f"input of {name}", source, self.given, self.dtype)
        self.target = env.image.claim(f"output of {name}", target, received, self.dtype)
        self.poison = env.image.tensor(self.target).clone()

    def run(self, turns, where=""):
        """Make a call for each turn, without a barrier of the suite between them. Return whether all was right on every
        rank."""
        env, image, findings = self.env, self.env.image, Findings(self.env.rank)
        inputs = [
            _values(self.given, env.rank, self.number + number, env.world_size).to(self.dtype)
            for number in range(len(turns))
        ]
        self.number += len(turns)
        of_all = gathered(torch.stack(inputs).unsqueeze(0))  # also a barrier: every rank has read what it had to
        outputs = [_expected(self.op, of_all[:, number], env.rank, self.part).cpu() for number in range(len(turns))]
        steps = [env.gate.step() for _ in range(len(turns) + 1)]
        image.fill(self.source, inputs[-1])  # what the heap holds at the end
        image.expect(self.target, outputs[-1])
        with env.acting():
            try:
                for number, turn in enumerate(turns):
                    before = outputs[number - 1] if number else None
                    self._turn(turn, steps[number], inputs[number], outputs[number], before, findings, where)
            except Unavailable:
                self.available = False
        env.gate.enter(steps[-1])
        env.gate.reach(steps[-1])
        env.settle()
        self.available = bool_all(self.available)
        if self.available:
            self.mismatch = image.difference() or findings.first
        self.launches = int(gathered(torch.tensor([self.launches])).max())
        return bool_all(self.mismatch is None and env.fault is None)

    def _turn(self, turn, step, given, expected, before, findings, where):
        env, held = self.env, turn.held == self.env.rank
        target, source = env.image.tensor(self.target), env.image.tensor(self.source)
        if held and not turn.launch:
            env.gate.hold(step)
            if before is not None:
                self._check(findings, before, "before this rank's next call" + str(turn) + where)
        source.copy_(given)
        target.copy_(self.poison)
        env.gate.enter(step)

        def launch(number):
            if held and number == turn.launch:
                env.gate.hold(step, step + 1)

        with env.gate.watching(launch) as launches:
            self.call(env.iris.heap.provided, target, source)
            env.device.synchronize()
            self.launches = max(self.launches, launches[0])
            self._check(findings, expected, "when this rank's work had ended" + str(turn) + where)
        env.gate.reach(step)

    def _check(self, findings, expected, when):
        """Note the first element of the output that is wrong now, although it may be right at the end."""
        now = self.env.image.tensor(self.target).cpu()
        for element in (now != expected).nonzero().flatten()[:1].tolist():
            label = f"output of {self.name}, element {element}, {when}"
            findings.equal(label, now[element].item(), expected[element].item())


def _values(count, rank, turn, ranks):
    """Return small integers whose sums are exact in every dtype, and that differ from rank to rank and turn to turn."""
    bound = max(128 // ranks, 1)
    return (torch.arange(count) * 5 + rank * 11 + turn * 3) % (2 * bound + 1) - bound


def _expected(op, of_all, rank, part):
    if op == "all_gather":
        return of_all.flatten()
    if op == "all_to_all":
        return of_all[:, rank * part : (rank + 1) * part].flatten()
    total = of_all.double().sum(0).to(of_all.dtype)
    return total if op == "all_reduce" else total[rank * part : (rank + 1) * part]


def drawn(ranks, dtype):
    from conformance.calls import strategies

    return strategies.calls(ranks, dtype)


@requirement("CALL-ALLREDUCE-001", cases=drawn, dtype=DTYPES, weak=False)
def test_all_reduce(check, case: CallCase, dtype):
    check(run, case, op="all_reduce")


@requirement("CALL-ALLGATHER-001", cases=drawn, dtype=DTYPES, weak=False)
def test_all_gather(check, case: CallCase, dtype):
    check(run, case, op="all_gather")


@requirement("CALL-REDUCESCATTER-001", cases=drawn, dtype=DTYPES, weak=False)
def test_reduce_scatter(check, case: CallCase, dtype):
    check(run, case, op="reduce_scatter")


@requirement("CALL-ALLTOALL-001", cases=drawn, dtype=DTYPES, weak=False)
def test_all_to_all(check, case: CallCase, dtype):
    check(run, case, op="all_to_all")
