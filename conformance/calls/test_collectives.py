"""Collectives of an adapter, in every form that it offers, against torch.distributed on the same inputs."""

import torch

from conformance.calls.cases import CallCase
from fixtures.adapters import Unavailable
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name, size_of
from harness.errors import UsageError
from harness.oracles import bool_all, gathered
from harness.oracles.heap import starts

DTYPES = ("fp32", "bf16")
"""Element types that every adapter's collectives take."""


def run(env, case, op):
    """Run every form of ``op`` on this rank, and return the first difference of the whole heap."""
    forms = {name: call for name, call in env.adapter.collectives().items() if name.partition(":")[0] == op}
    judged = 0
    for name, call in sorted(forms.items()):
        for turn in range(case.calls):
            mismatch, ran = _one(env, case, op, name, call, turn)
            if not bool_all(mismatch is None and env.fault is None):  # no rank goes on to the next turn alone
                return mismatch
            judged += ran
    if not judged:
        raise UsageError(f"this machine has none of the forms of {op} that the adapter offers: {', '.join(forms)}")
    return None


def _one(env, case, op, name, call, turn):
    ranks, image, dtype = env.world_size, env.image, of_name(case.dtype)
    unit = max(env.adapter.granule // size_of(case.dtype), 1)
    part = -(-case.n // unit) * unit
    given = part * ranks if op in ("reduce_scatter", "all_to_all") else part
    received = part * ranks if op in ("all_gather", "all_to_all") else part
    source, target = starts(1024, [given * dtype.itemsize, received * dtype.itemsize])
    image.reset()
    mine = _values(given, env.rank, turn, ranks).to(dtype)
    image.fill(image.claim(f"input of {name}", source, given, dtype), mine)
    output = image.claim(f"output of {name}", target, received, dtype)
    of_all = gathered(mine.unsqueeze(0))  # also a barrier: every heap is ready
    expected = _expected(op, of_all, env.rank, part)
    image.expect(output, expected)
    env.late(case.late, case.late_ms)
    here, at_return = True, None
    with env.acting():
        try:
            call(env.iris.heap.provided, image.tensor(output), image.tensor(image.regions[0]))
            env.device.synchronize()
            at_return = image.tensor(output).cpu().clone()  # before settle(), which waits for the other ranks
        except Unavailable:
            here = False
    env.settle()
    if not bool_all(here):
        return None, False
    return image.difference() or _incomplete(env, name, at_return, expected.cpu()), True


def _incomplete(env, name, at_return, expected):
    """Return the first element that was wrong when this rank's own work had ended, although it is right now."""
    findings = Findings(env.rank)
    if at_return is not None:
        for element in (at_return != expected).nonzero().flatten()[:1].tolist():
            label = f"output of {name}, element {element}, when this rank's work had ended"
            findings.equal(label, at_return[element].item(), expected[element].item())
    return findings.first


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


@requirement("CALL-ALLREDUCE-001", cases=drawn, dtype=DTYPES)
def test_all_reduce(check, case: CallCase, dtype):
    check(run, case, op="all_reduce")


@requirement("CALL-ALLGATHER-001", cases=drawn, dtype=DTYPES)
def test_all_gather(check, case: CallCase, dtype):
    check(run, case, op="all_gather")


@requirement("CALL-REDUCESCATTER-001", cases=drawn, dtype=DTYPES)
def test_reduce_scatter(check, case: CallCase, dtype):
    check(run, case, op="reduce_scatter")


@requirement("CALL-ALLTOALL-001", cases=drawn, dtype=DTYPES)
def test_all_to_all(check, case: CallCase, dtype):
    check(run, case, op="all_to_all")
