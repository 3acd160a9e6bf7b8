"""The host's barrier, broadcast, and logging."""

import io
import logging

import numpy as np
import torch
import torch.distributed as dist

from conformance.rma.words import read_word
from conformance.support.cases import HostCase
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import chunks_of, members_of


def run_barrier(env, case):
    """Check that a rank that has left the barrier sees all marks. One rank is late and writes its mark just before it
    enters.

    The marks are on the heap and are read by remote loads, as users of a barrier do.
    """
    (group,) = case.arguments
    members = members_of(group, env.rank, env.world_size)
    handle = env.group(members, chunks_of(group, env.world_size))
    findings = Findings(env.rank)
    mark = env.image.arena[4096:4100].view(torch.int32)
    for turn in range(1, 4):
        mark.fill_(0)
        env.settle()
        late = members[(case.late + turn) % len(members)]
        env.late(late, case.late_ms)
        mark.fill_(turn)
        env.iris.barrier(group=handle)
        for rank in members:
            seen = read_word(env, rank, 4096)
            findings.equal(f"mark {turn} of rank {rank} after the barrier, with rank {late} late", seen, turn)
        env.settle()
    _without_the_others(env, group, handle)
    return findings.first


def _without_the_others(env, group, handle):
    """Let the first group pass its barrier while the other ranks wait for a message that follows it.

    A barrier that waited for ranks outside the group would hang until the case's deadline.
    """
    first, *others = chunks_of(group, env.world_size)
    word = torch.zeros(1)
    if env.rank in first:
        env.iris.barrier(group=handle)
    if env.rank == first[0]:
        for other in others:
            for rank in other:
                dist.send(word, rank)
    elif env.rank not in first:
        dist.recv(word, first[0])
    env.settle()


def barrier_cases(ranks):
    return [
        HostCase("barrier", (group,), late=late, late_ms=25)
        for group in ("world", "stride")
        for late in range(min(2, ranks))
    ]


@requirement(
    "HOST-BARRIER-001",
    cases=barrier_cases,
    one_process_on_gpus="it tests the order of work that a process has enqueued",
)
def test_barrier(check, case):
    check(run_barrier, case)


VALUES = {
    "int": (7, np.ndarray), "float": (1.5, np.ndarray), "list": ([1, 2, 3], np.ndarray),
    "tuple": ((1.5, 2.5), np.ndarray),
    "array": (np.arange(6).reshape(2, 3), np.ndarray), "tensor": (torch.arange(5), np.ndarray),
    "bfloat16": (torch.tensor([1.5, -3e38, 2**-130]).bfloat16(), np.ndarray),
    "ragged list": ([[1, 2], [3]], list), "bool": (True, bool), "str": ("text", str), "dict": ({"a": [1, "b"]}, dict),
}  # fmt: skip


def run_broadcast(env, case):
    findings = Findings(env.rank)
    for name, (value, kind) in VALUES.items():
        for source in {0, env.world_size - 1}:
            passed = value if env.rank == source else "something else"
            got = env.iris.broadcast(passed, src=source)
            findings.equal(f"type of broadcast {name} from rank {source}", type(got).__name__, kind.__name__)
            wanted = value
            if isinstance(value, torch.Tensor):  # numpy has no bfloat16, and float32 holds all of it
                wanted = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
            findings.true(
                f"value of broadcast {name} from rank {source}: {got!r}",
                np.array_equal(got, wanted) if kind is np.ndarray else got == value,
            )
    (extended,) = case.arguments
    for source in {0, env.world_size - 1} if extended else ():
        findings.equal(
            f"broadcast values that changed when rank {source} overwrote what it had passed",
            env.in_library(changed_later, source),
            [],
        )
    scalar = env.iris.broadcast(3.25 if env.rank == 0 else None)
    findings.equal("dimensions of a broadcast number", np.ndim(scalar), 0)
    findings.true("a broadcast number compares equal", scalar == 3.25)
    return findings.first


def changed_later(env, source):
    """Broadcast values that can be written, and overwrite what was passed; return the names of the results that
    changed."""
    values = {
        "tensor": torch.zeros(4),
        "tensor on the device": torch.zeros(4, device=env.device.torch_device),
        "array": np.zeros(4),
        "column of an array": np.zeros((4, 2))[:, 1],
        "list": [0] * 4,
        "dict": {"a": [0] * 4},
    }
    changed = []
    for name, value in values.items():
        got = env.iris.broadcast(value if env.rank == source else None, src=source)
        (value["a"] if name == "dict" else value)[:] = torch.ones(4) if isinstance(value, torch.Tensor) else [1] * 4
        if np.any(got["a"] if name == "dict" else got):
            changed.append(name)
    return changed


@requirement("HOST-BROADCAST-001", cases=lambda ranks: [HostCase("broadcast", (judged.extended(),))])
def test_broadcast(check, case):
    check(run_broadcast, case)


def run_drawn_broadcast(env, case):
    """Broadcast from any rank a device tensor, an array, or nested lists or tuples of numbers, of any shape."""
    (form, dtype, (source, *size)) = case.arguments
    findings = Findings(env.rank)
    tensor = (torch.arange(torch.Size(size).numel()) % 100).view(size).to(getattr(torch, dtype))
    wanted = (tensor.float() if dtype == "bfloat16" else tensor).numpy()
    value = {
        "tensor": lambda: tensor.to(env.device.torch_device),
        "array": lambda: wanted,
        "list": wanted.tolist,
        "tuple": lambda: _tuples(wanted.tolist()),
    }[form]()
    got = env.iris.broadcast(value if env.rank == source else env.rank, src=source)
    findings.equal("type of the broadcast value", type(got).__name__, "ndarray")
    if findings.first is None:
        findings.equal("shape of the broadcast value", got.shape, wanted.shape)
        findings.true(f"the broadcast value: {got!r}", np.array_equal(got, wanted))
        if form in ("tensor", "array"):
            findings.equal("dtype of the broadcast value", str(got.dtype), str(wanted.dtype))
    return findings.first


def _tuples(value):
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def broadcast_cases(ranks):
    from hypothesis import strategies as st

    dtypes = st.sampled_from(["int32", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64"])
    sizes = st.lists(st.integers(1, 6), min_size=1, max_size=3)
    empty = st.sampled_from([[], [0], [2, 0]])
    places = st.tuples(st.integers(0, ranks - 1), sizes).map(lambda place: (place[0], *place[1]))
    # Without elements or dimensions, only tensors and arrays: an empty list has no element type.
    bare = st.tuples(st.integers(0, ranks - 1), empty).map(lambda place: (place[0], *place[1]))
    arguments = st.one_of(
        st.tuples(st.sampled_from(["tensor", "array", "list", "tuple"]), dtypes, places),
        st.tuples(st.sampled_from(["tensor", "array"]), dtypes, bare),
    )
    return st.builds(HostCase, st.just("drawn_broadcast"), arguments)


@requirement("HOST-BROADCAST-002", cases=broadcast_cases)
def test_drawn_broadcast(check, case):
    check(run_drawn_broadcast, case)


def run_logging(env, case):
    findings, package = Findings(env.rank), env.under_test.module
    shared = env.same_object(package.logger, env.module("logging").getLogger("iris"))
    findings.true("the logger is named iris", shared)
    findings.equal("levels", [package.DEBUG, package.INFO, package.WARNING, package.ERROR], [10, 20, 30, 40])
    handlers, text = env.in_library(logged)
    findings.equal("stream handlers of the logger", handlers, 1)
    shown = [f"{name} at level {level}" for i, level in enumerate(LEVELS) for name in LEVELS[i:]]
    lines = text.splitlines()
    findings.equal("number of lines", len(lines), len(shown))
    for line, message in zip(lines, shown, strict=False):
        findings.true(f"message in {line!r}", line.endswith(message))
        findings.true(f"[Iris] and rank in {line!r}", "[Iris]" in line and f"[{env.rank}/{env.world_size}]" in line)
    return findings.first


LEVELS = ("debug", "info", "warning", "error")


def logged(env):
    """Log each message at each level; return the number of the logger's stream handlers, and what the first one
    wrote."""
    package, iris = env.under_test.module, env.iris
    iris.info("first use")
    handlers = [handler for handler in package.logger.handlers if isinstance(handler, logging.StreamHandler)]
    if not handlers:
        return 0, ""
    handler = handlers[0]
    text, old_level = io.StringIO(), package.logger.level
    stream = handler.setStream(text)
    try:
        for level in LEVELS:
            package.set_logger_level(getattr(package, level.upper()))
            for name in LEVELS:
                getattr(iris, name)(f"{name} at level {level}")
    finally:
        handler.setStream(stream)
        package.set_logger_level(old_level)
    return len(handlers), text.getvalue()


@requirement("HOST-LOG-001", cases=lambda ranks: [HostCase("logging")])
def test_logging(check, case):
    check(run_logging, case)
