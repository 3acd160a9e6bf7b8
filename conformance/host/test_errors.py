"""Wrong arguments: every rank gets an error, even if only one rank makes the mistake.

In a case either every rank makes the wrong call, or one rank makes it while the others make a valid call. A rank with a
wrong call gets the documented error; the others get some error, since the collective call cannot succeed, and no rank
waits. A call with out is not collective: only the rank with a wrong out gets an error. Nothing is allocated, and the
instance stays usable: the next allocation has the same offset on all ranks and the right contents.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from conformance.host.checks import offset_in_heap
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

HEAP = 1 << 18


@dataclass(frozen=True)
class Mistake:
    """A wrong call ``wrong(iris)`` that must raise ``kind`` with ``says`` in the message.

    ``right(iris)`` is the valid call of the other ranks if one rank makes the mistake; None: all ranks make it.
    ``alone``: the call is only wrong if a single rank makes it.
    """

    kind: type[Exception] | tuple[type[Exception], ...]
    wrong: Callable[[Any], Any]
    right: Callable[[Any], Any] | None
    says: str = ""
    alone: bool = False


def _four(iris):
    return iris.zeros(4)


def _sent(iris):
    return iris.broadcast(1)


def _out(iris, dtype=torch.float32):
    """Return six elements on the heap, in an allocation that is the same for every dtype."""
    return iris.zeros(48, dtype=torch.uint8)[: 6 * dtype.itemsize].view(dtype)


ALLOCATING = {
    "device": Mistake(RuntimeError, lambda iris: iris.zeros(4, device="meta"), _four),
    "device index": Mistake(RuntimeError, lambda iris: iris.ones(4, device=f"{iris.get_device().type}:99"), _four),
    "device of rand": Mistake(RuntimeError, lambda iris: iris.rand(4, device="mps"), _four),
    "device of arange": Mistake(RuntimeError, lambda iris: iris.arange(4, device="meta"), _four),
    "device of full": Mistake(RuntimeError, lambda iris: iris.full((4,), 1, device="meta"), _four),
    "device of empty": Mistake(RuntimeError, lambda iris: iris.empty(4, device="meta"), _four),
    "device of linspace": Mistake(RuntimeError, lambda iris: iris.linspace(0, 1, 4, device="meta"), _four),
    "device of randn": Mistake(RuntimeError, lambda iris: iris.randn(4, device="meta"), _four),
    "device of randint": Mistake(RuntimeError, lambda iris: iris.randint(9, (4,), device="meta"), _four),
    "foreign input": Mistake(RuntimeError, lambda iris: iris.zeros_like(torch.empty(4, device="meta")), _four),
    "layout": Mistake(ValueError, lambda iris: iris.zeros(4, layout=torch.sparse_coo), _four),
    "layout of ones": Mistake(ValueError, lambda iris: iris.ones(4, layout=torch.sparse_coo), _four),
    "layout of full": Mistake(ValueError, lambda iris: iris.full((4,), 1, layout=torch.sparse_coo), _four),
    "layout of empty": Mistake(ValueError, lambda iris: iris.empty(4, layout=torch.sparse_csr), _four),
    "layout of arange": Mistake(ValueError, lambda iris: iris.arange(4, layout=torch.sparse_coo), _four),
    "layout of linspace": Mistake(ValueError, lambda iris: iris.linspace(0, 1, 4, layout=torch.sparse_coo), _four),
    "layout of rand": Mistake(ValueError, lambda iris: iris.rand(4, layout=torch.sparse_coo), _four),
    "layout of randn": Mistake(ValueError, lambda iris: iris.randn(4, layout=torch.sparse_coo), _four),
    "layout of randint": Mistake(ValueError, lambda iris: iris.randint(9, (4,), layout=torch.sparse_coo), _four),
    "negative size": Mistake(ValueError, lambda iris: iris.zeros(-4), _four),
    "negative sizes": Mistake(ValueError, lambda iris: iris.rand(-2, -2), _four),
    "size of full is an int": Mistake(TypeError, lambda iris: iris.full(4, 1), _four),
    "step of zero": Mistake(ValueError, lambda iris: iris.arange(0, 4, 0), _four, "step must be non-zero"),
    "empty range": Mistake(ValueError, lambda iris: iris.arange(0), _four),
    "range of equal ends": Mistake(ValueError, lambda iris: iris.arange(4, 4), _four),
    "range backwards": Mistake(ValueError, lambda iris: iris.arange(4, 0), _four),
    "range against its step": Mistake(ValueError, lambda iris: iris.arange(0, 4, -1), _four),
    "randint of a size alone": Mistake(ValueError, lambda iris: iris.randint((4,)), _four),
    "randint of four": Mistake(ValueError, lambda iris: iris.randint(0, 1, 2, (4,)), _four),
    "randint of nothing": Mistake(RuntimeError, lambda iris: iris.randint(5, 5, (4,)), _four),
    "generator of another device": Mistake(
        (RuntimeError, TypeError), lambda iris: iris.rand(4, generator=_other_generator(iris)), _four
    ),
    "dtype of another kind": Mistake(TypeError, lambda iris: iris.zeros(4, dtype="float32"), _four),
    "size of randint is an int": Mistake(TypeError, lambda iris: iris.randint(9, 4), _four),
    "size of uniform is an int": Mistake(TypeError, lambda iris: iris.uniform(4), _four),
    "bounds of uniform": Mistake(RuntimeError, lambda iris: iris.uniform((4,), 1.0, 0.0), _four),
    "integers of rand": Mistake(RuntimeError, lambda iris: iris.rand(4, dtype=torch.int32), _four),
    "gradient of integers": Mistake(
        RuntimeError, lambda iris: iris.zeros(4, dtype=torch.int8, requires_grad=True), _four
    ),
    "value beyond the dtype": Mistake(RuntimeError, lambda iris: iris.full((4,), 300, dtype=torch.int8), _four),
    "too large": Mistake(MemoryError, lambda iris: iris.zeros(HEAP + 1, dtype=torch.uint8), None),
    "other size": Mistake(RuntimeError, lambda iris: iris.zeros(5), _four, alone=True),
    "other dtype": Mistake(RuntimeError, lambda iris: iris.zeros(4, dtype=torch.float64), _four, alone=True),
}
OUT = {
    "out of another size": Mistake(
        RuntimeError,
        lambda iris: iris.zeros(5, out=_out(iris)),
        lambda iris: iris.zeros(6, out=_out(iris)),
        "The output tensor has 6 elements, but 5 are required",
    ),
    "out of another dtype": Mistake(
        RuntimeError,
        lambda iris: iris.ones(6, out=_out(iris, torch.int32)),
        lambda iris: iris.ones(6, out=_out(iris)),
        "The output tensor has dtype torch.int32, but torch.float32 is required",
    ),
    "out of another dtype for rand": Mistake(
        RuntimeError,
        lambda iris: iris.rand(2, 3, out=_out(iris, torch.float64)),
        lambda iris: iris.rand(2, 3, out=_out(iris)),
        "has dtype torch.float64",
    ),
    "out of another dtype for randint": Mistake(
        RuntimeError,
        lambda iris: iris.randint(9, (6,), out=_out(iris)),
        lambda iris: iris.randint(9, (6,), out=_out(iris, torch.int64)),
        "but torch.int64 is required",
    ),
    "out of another size for arange": Mistake(
        RuntimeError,
        lambda iris: iris.arange(4, out=_out(iris, torch.int64)),
        lambda iris: iris.arange(6, out=_out(iris, torch.int64)),
        "6 elements, but 4 are",
    ),
    "out off the heap": Mistake(
        RuntimeError,
        lambda iris: iris.full((6,), 1.0, out=_out(iris).clone()),
        lambda iris: iris.full((6,), 1.0, out=_out(iris)),
        "The output tensor is not on the symmetric heap",
    ),
    "out off the heap for linspace": Mistake(
        RuntimeError,
        lambda iris: iris.linspace(0, 1, 6, _out(iris).clone()),
        lambda iris: iris.linspace(0, 1, 6, _out(iris)),
        "The output tensor is not on the symmetric heap",
    ),
    "out off the heap for randn": Mistake(
        RuntimeError,
        lambda iris: iris.randn(6, out=_out(iris).clone()),
        lambda iris: iris.randn(6, out=_out(iris)),
        "The output tensor is not on the symmetric heap",
    ),
}  # fmt: skip
MESSAGES = {
    "broadcast of None": Mistake(ValueError, lambda iris: iris.broadcast(None), None),
    "broadcast of what cannot be pickled": Mistake(TypeError, lambda iris: iris.broadcast(torch), None),
    "broadcast of no data": Mistake(TypeError, lambda iris: iris.broadcast(torch.empty(2, device="meta")), None),
    "broadcast from nobody": Mistake(ValueError, lambda iris: iris.broadcast(1, src=iris.get_num_ranks()), _sent),
    "broadcast from a negative rank": Mistake(ValueError, lambda iris: iris.broadcast(1, src=-1), _sent),
    "broadcast from another rank": Mistake(
        ValueError, lambda iris: iris.broadcast(1, src=1), lambda iris: iris.broadcast(1, src=0), alone=True
    ),
}
PUBLISHED = (
    "device", "foreign input", "layout", "step of zero", "empty range", "range", "randint of a", "randint of four",
    "too large", "out ",
)  # fmt: skip
"""What the names of mistakes begin with for which the published API states the error."""
MISTAKES = {**ALLOCATING, **OUT, **MESSAGES}


def _other_generator(iris):
    """Return a value that the device cannot use as a generator: the CPU's generator for a GPU, else a text."""
    return torch.Generator() if iris.get_device().type != "cpu" else "no generator"


def run(env, case):
    (name, culprit) = case.arguments
    mistake, findings = MISTAKES[name], Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP)
    first = iris.zeros(1)
    if culprit in (-1, env.rank):
        findings.raises(f"{name}: the wrong call", mistake.kind, lambda: mistake.wrong(iris), says=mistake.says)
    else:
        findings.raises(f"{name}: a valid call while another rank's is wrong", Exception, lambda: mistake.right(iris))
    _check_usable(env, findings, iris, first, allocating=name in ALLOCATING)
    env.settle()
    release(iris)
    return findings.first


def run_out(env, case):
    """Make every call with a wrong out on one rank, while the others make a valid call."""
    (first_culprit,) = case.arguments
    findings, iris = Findings(env.rank), env.under_test.iris(heap_size=HEAP)
    first = iris.zeros(1)
    for number, (name, mistake) in enumerate(OUT.items()):
        culprit = (first_culprit + number) % env.world_size
        if env.rank == culprit:
            findings.raises(f"{name}: the wrong call", mistake.kind, lambda: mistake.wrong(iris), says=mistake.says)  # noqa: B023
        else:
            findings.equal(f"{name}: elements of a valid call elsewhere", mistake.right(iris).numel(), 6)
        try:
            iris.barrier()
        except RuntimeError as error:
            raise RuntimeError(f"{name} on rank {culprit}, then a barrier: {error}") from error
    _check_usable(env, findings, iris, first, allocating=False)
    env.settle()
    release(iris)
    return findings.first


def _check_usable(env, findings, iris, first, allocating):
    """Check that the instance works after the mistake, and that a failed allocating call left no allocation."""
    iris.barrier()
    after = iris.full((3,), env.rank + 0.5)
    findings.equal("an allocation after the mistake", after.tolist(), [env.rank + 0.5] * 3)
    offsets = gathered(torch.tensor([offset_in_heap(iris, after)])).tolist()
    findings.equal("its offset on all ranks", len(set(offsets)), 1)
    if allocating:
        findings.equal(
            "its distance from the allocation before the mistake", address_of(after) - address_of(first), 1024
        )


def cases(ranks):
    """Return a case for each mistake made by all ranks, and one for each that a single rank can make."""
    common = [HostCase("mistake", (name, -1)) for name, mistake in MISTAKES.items() if not mistake.alone]
    if not judged.extended():
        return [case for case in common if str(case.arguments[0]).startswith(PUBLISHED)]
    if ranks == 1:
        return common
    single = [
        HostCase("mistake", (name, at % ranks))
        for at, (name, mistake) in enumerate(MISTAKES.items())
        if mistake.right and name not in OUT
    ]
    return [*common, *single, HostCase("out", (0,))]


@requirement("HOST-ERROR-001", cases=cases)
def test_errors(check, case):
    check(run_out if case.what == "out" else run, case)
