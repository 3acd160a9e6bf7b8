"""Rules of all tensor factories, which create torch tensors on the symmetric heap, and is_symmetric.

Each check creates its own small instance and compares with torch's result for the same arguments. test_drawn_tensors.py
tests the values of every factory, test_errors.py its errors.
"""

import ctypes

import torch

from conformance.host.checks import offset_in_heap, run_named
from conformance.rma.words import read_address
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)
CALLS = {
    "zeros": (2,), "ones": (2,), "empty": (2,), "full": ((2,), 1), "arange": (2,), "linspace": (0, 1, 2), "rand": (2,),
    "randn": (2,), "randint": (5, (2,)), "uniform": ((2,),),
}  # fmt: skip
"""A call of every factory but zeros_like, in its shortest form; each creates two elements."""

SIZES = ((7,), (2, 3), (4, 1, 5), (), (0,), (3, 0))


def _like_torch(findings, iris, label, got, wanted):
    findings.same(label, got.detach(), wanted)
    findings.equal(f"strides of {label}", tuple(got.stride()), tuple(wanted.stride()))
    findings.true(f"{label} is on the heap", iris.is_symmetric(got))
    if got.numel():
        offsets = gathered(torch.tensor([offset_in_heap(iris, got)]))
        findings.equal(f"offset of {label} on all ranks", len(set(offsets.tolist())), 1)


def filled(env, findings, iris):
    for dtype in DTYPES:
        for size in SIZES:
            _like_torch(
                findings, iris, f"zeros{size} {dtype}", iris.zeros(*size, dtype=dtype), torch.zeros(size, dtype=dtype)
            )
            _like_torch(
                findings, iris, f"ones{size} {dtype}", iris.ones(*size, dtype=dtype), torch.ones(size, dtype=dtype)
            )
        _like_torch(
            findings, iris, f"full {dtype}", iris.full((3, 2), 1, dtype=dtype), torch.full((3, 2), 1, dtype=dtype)
        )


def fresh_memory(env, findings, iris):
    """Check that zeros clears used memory: the heap is filled, freed and allocated again."""
    first = iris.empty(4096, dtype=torch.uint8)
    first.fill_(0xA5)
    if hasattr(iris, "free"):
        rest = iris.full((1 << 19,), 0xA5, dtype=torch.uint8)
        iris.free(rest)
        iris.free(first)
    elif env.device.torch_device.type == "cpu":
        env.in_library(fill_heap, iris, 1 << 20)
    else:
        # A view beyond the tensor. torch bounds it by the tensor's storage, which on a GPU is the whole heap.
        storage = first.untyped_storage()
        torch.empty(0, dtype=torch.uint8, device=first.device).set_(storage, 0, (storage.nbytes(),)).fill_(0xA5)
    env.settle()
    used = iris.empty(1000, dtype=torch.uint8)
    if getattr(iris.heap, "allocator_type", "torch") == "torch":  # this allocator keeps freed memory
        findings.true("freed memory is allocated again", bool((used == 0xA5).all()))
    _like_torch(
        findings, iris, "zeros on used memory", iris.zeros(100, dtype=torch.int32), torch.zeros(100, dtype=torch.int32)
    )
    _like_torch(findings, iris, "ones on used memory", iris.ones(100), torch.ones(100))
    _like_torch(
        findings,
        iris,
        "zeros_like on used memory",
        iris.zeros_like(torch.empty(5, 5, device=iris.get_device())),
        torch.zeros(5, 5),
    )


def fill_heap(env, iris, size):
    """Fill this rank's heap by its address."""
    base = int(iris.get_heap_bases()[env.rank])
    torch.frombuffer((ctypes.c_ubyte * size).from_address(base), dtype=torch.uint8).fill_(0xA5)


def sizes(env, findings, iris):
    for size in ((2, 3), ((2, 3),), ([2, 3],), (((2, 3),),)):
        for name in ("zeros", "ones", "empty", "rand", "randn"):
            findings.equal(f"shape of {name}{size}", tuple(getattr(iris, name)(*size).shape), (2, 3))
    findings.equal("shape of full([2, 3], 1)", tuple(iris.full([2, 3], 1).shape), (2, 3))
    findings.equal("shape of randint(9, [2, 3])", tuple(iris.randint(9, [2, 3]).shape), (2, 3))
    findings.equal("shape of uniform((2, 3))", tuple(iris.uniform((2, 3)).shape), (2, 3))
    for steps in (6, (6,), [6], ((6,),), (2, 3)):
        findings.equal(f"shape of linspace with steps {steps}", tuple(iris.linspace(0, 1, steps).shape), (6,))


def dtypes(env, findings, iris):
    """Check the dtype of a result if none is passed, under both default dtypes that torch can have."""
    for default, complex_ in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        env.module("torch").set_default_dtype(default)
        try:
            for name in ("zeros", "ones", "empty", "rand", "randn"):
                findings.equal(f"dtype of {name}", getattr(iris, name)(2).dtype, default)
            findings.equal("dtype of full with a float", iris.full((2,), 1.5).dtype, default)
            findings.equal("dtype of full with an int", iris.full((2,), 3).dtype, torch.int64)
            findings.equal("dtype of full with a bool", iris.full((2,), True).dtype, torch.int64)
            findings.equal("dtype of arange of ints", iris.arange(3).dtype, torch.int64)
            for arguments in ((3.0,), (0.0, 3), (0, 3.0), (0, 3, 1.0)):
                findings.equal(f"dtype of arange{arguments}", iris.arange(*arguments).dtype, default)
            findings.equal("dtype of linspace of ints", iris.linspace(0, 1, 2).dtype, default)
            for ends in ((1j, 2), (0, 1j), (torch.tensor(1j), 2)):
                findings.equal(f"dtype of linspace{ends}", iris.linspace(*ends, 2).dtype, complex_)
            findings.equal("dtype of randint", iris.randint(5, (2,)).dtype, torch.int64)
            findings.equal("dtype of uniform", iris.uniform((2,)).dtype, torch.float32)
        finally:
            env.module("torch").set_default_dtype(torch.float32)
    findings.equal("value of full", iris.full((2,), -3).tolist(), [-3, -3])
    findings.equal("linspace of complex ends", iris.linspace(1j, 2, 3).tolist(), [1j, 1 + 0.5j, 2 + 0j])
    for ends in ((torch.tensor(1), torch.tensor(3.0)), (torch.tensor(1), 3), (1, torch.tensor(3))):
        findings.equal(f"linspace{ends}", iris.linspace(*ends, 3).tolist(), [1.0, 2.0, 3.0])


def placement(env, findings, iris):
    here = iris.get_device()
    for name, arguments in CALLS.items():
        method = getattr(iris, name)
        findings.equal(f"device of {name}", method(*arguments).device, here)
        if name != "uniform":  # uniform has no argument device
            findings.equal(f"device of {name} by type", method(*arguments, device=here.type).device, here)
            findings.equal(f"device of {name} by device", method(*arguments, device=here).device, here)
            findings.equal(f"layout of {name}", method(*arguments, layout=torch.strided).layout, torch.strided)
    findings.equal("device of zeros_like", iris.zeros_like(torch.empty(2, device=here)).device, here)
    findings.equal("requires_grad of zeros", iris.zeros(2, requires_grad=True).requires_grad, True)
    findings.equal("requires_grad of zeros by default", iris.zeros(2).requires_grad, False)
    findings.equal("requires_grad of arange", iris.arange(2.0, requires_grad=True).requires_grad, True)


def gradients(env, findings, iris):
    """Check that a write to another tensor, or an allocation, does not invalidate what autograd saved of a tensor."""
    error, gradient = env.in_library(gradient_of_squares, iris)
    findings.equal("error of backward() after writes to other tensors", error, "")
    if not error:
        findings.equal("gradients", gradient.tolist(), [4.0] * 3)
    flagged = iris.empty(4, requires_grad=True)
    iris.arange(4, out=flagged, dtype=torch.float32)
    findings.equal("requires_grad of an out that had it", flagged.requires_grad, True)


def gradient_of_squares(env, iris):
    """Return the error of backward() after writes to other tensors of the heap, and the gradient."""
    tensor, other = iris.full((3,), 2.0, requires_grad=True), iris.zeros(3)
    total = (tensor * tensor).sum()
    other.add_(1)
    iris.ones(5)
    try:
        total.backward()
    except RuntimeError as error:
        return str(error), None
    return "", tensor.grad


def out(env, findings, iris):
    """Check that a result with ``out`` is a view of it, at the same address, and overwrites its contents."""
    target = iris.empty(6)
    for name, arguments in (("zeros", (2, 3)), ("ones", (2, 3)), ("full", ((2, 3), 2.5)), ("linspace", (0, 5, (2, 3)))):
        target.fill_(-1)
        got = getattr(iris, name)(*arguments, out=target)
        findings.equal(f"address of {name} with out", address_of(got), address_of(target))
        if name == "linspace":
            findings.same(f"{name} with out", got, torch.linspace(0, 5, 6))
        else:
            findings.same(f"{name} with out", got, getattr(torch, name)(*arguments))
        findings.same(f"out after {name}", target, got.cpu().view(6))
    findings.equal("address of empty with out", address_of(iris.empty(3, 2, out=target)), address_of(target))
    line = iris.empty(4, dtype=torch.int64)
    findings.true("arange returns out itself", iris.arange(4, out=line) is line)
    findings.same("arange with out", line, torch.arange(4))
    part = iris.zeros(10)
    iris.ones(4, out=part[3:7])
    findings.equal("a part of a tensor as out", part.tolist(), [0.0] * 3 + [1.0] * 4 + [0.0] * 3)


def ranges(env, findings, iris):
    for arguments in ((5,), (2, 7), (1, 10, 3), (5, 0, -2), (0.0, 1.0, 0.25), (3.0,), (torch.tensor(3),)):
        _like_torch(findings, iris, f"arange{arguments}", iris.arange(*arguments), torch.arange(*arguments))
    _like_torch(findings, iris, "arange int32", iris.arange(5, dtype=torch.int32), torch.arange(5, dtype=torch.int32))


def like(env, findings, iris):
    """Check the strides of zeros_like for inputs of every number of dimensions: dense in any order, or with gaps."""
    device = iris.get_device()
    sources = [
        torch.empty(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last),
        torch.empty(2, 1, 3, 4, 5, device=device).to(memory_format=torch.channels_last_3d),
    ]
    sources += [source[:, :, 1:] for source in sources]
    for dimensions in range(1, 6):
        dense = torch.empty(2, 3, 4, 3, 2, device=device).view(*(2, 3, 4, 3, 2)[: dimensions - 1], -1)
        order = tuple(reversed(range(dimensions)))
        sources += [dense, dense.permute(order), dense[..., ::2], dense.permute(order)[1:], dense[:1].expand_as(dense)]
    for source in sources:
        _like_torch(
            findings,
            iris,
            f"zeros_like of strides {tuple(source.stride())}",
            iris.zeros_like(source),
            torch.zeros_like(source).cpu(),
        )
    _like_torch(
        findings,
        iris,
        "zeros_like int16",
        iris.zeros_like(torch.ones(3, device=device), dtype=torch.int16),
        torch.zeros(3, dtype=torch.int16),
    )


def formats(env, findings, iris):
    for size, memory_format in (
        ((2, 3, 4, 5), torch.channels_last),
        ((2, 3, 4, 5, 6), torch.channels_last_3d),
        ((2, 3), torch.channels_last),
    ):
        wanted = torch.empty(size, memory_format=memory_format if len(size) > 2 else torch.contiguous_format)
        got = iris.empty(size, memory_format=memory_format)
        findings.equal(f"strides of empty{size} {memory_format}", tuple(got.stride()), tuple(wanted.stride()))
    for name in ("empty", "rand", "randn"):
        findings.equal(f"{name} with pin_memory", tuple(getattr(iris, name)(2, pin_memory=True).shape), (2,))


def collective(env, findings, iris):
    """Check that a rank's writes before an allocation are visible to the other ranks after their allocation."""
    flag = iris.empty(1, dtype=torch.int32)
    flag.fill_(-1)
    read_address(env, address_of(flag))  # compiled and warm: the reads below must not give the late rank time
    env.settle()
    env.late(env.world_size - 1, 30)
    flag.fill_(env.rank)
    iris.zeros(8)
    for rank, base in reversed(list(enumerate(iris.get_heap_bases().tolist()))):
        seen = read_address(env, base + offset_in_heap(iris, flag))
        findings.equal(f"value that rank {rank} wrote before its allocation", seen, rank)


def names(env, findings, iris):
    """Check the factories as functions of the module tensor_creation."""
    module = env.under_test.module.tensor_creation
    device = iris.get_device()
    for name, arguments in {**CALLS, "zeros_like": (torch.empty(2, device=device),)}.items():
        function = getattr(module, name, None)
        findings.true(f"tensor_creation.{name}", env.is_callable(function))
        got = function(iris.heap, device, *arguments)
        findings.true(f"tensor_creation.{name} allocates on the heap", iris.is_symmetric(got) and got.numel() == 2)
    for requested, wanted in ((None, True), (device, True), (device.type, True), ("meta", False), ("mps", False)):
        findings.equal(f"is_valid_device({requested!r})", module.is_valid_device(requested, device), wanted)


ALL = (
    filled, fresh_memory, sizes, dtypes, placement, gradients, out, ranges, like, formats, collective, names,
)  # fmt: skip
CHECKS = {check.__name__: check for check in ALL}


def run(env, case):
    iris = env.under_test.iris(heap_size=1 << 20)
    mismatch = run_named(
        env,
        case,
        {name: lambda env, findings, check=check: check(env, findings, iris) for name, check in CHECKS.items()},
    )
    release(iris)
    return mismatch


@requirement("HOST-TENSOR-001", cases=lambda ranks: [HostCase(name) for name in CHECKS])
def test_tensors(check, case):
    check(run, case)


def is_symmetric_at(env, iris, address, size):
    """Return is_symmetric of the bytes at an address; it only uses the tensor's address and size."""
    return iris.is_symmetric(torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8))


def run_symmetric(env, case):
    findings, iris, arena = Findings(env.rank), env.iris, env.image.arena
    device = iris.get_device()
    for label, tensor, wanted in (
        ("a heap tensor", arena, True),
        ("a view into one", arena[5:9], True),
        ("its last byte", arena[-1:], True),
        ("every second byte of it", arena[1::2], True),
        ("a transposed view", arena[:12].view(3, 4).t(), True),
        ("an empty view", arena[:0], True),
        ("an ordinary tensor", torch.zeros(4, device=device), False),
        ("an empty ordinary tensor", torch.zeros(0, device=device), True),
    ):
        findings.equal(f"is_symmetric of {label}", iris.is_symmetric(tensor), wanted)
    other = env.under_test.iris(heap_size=1 << 18)
    findings.equal("is_symmetric of another instance's tensor", iris.is_symmetric(other.empty(4)), False)
    if device.type == "cpu":
        base = int(other.get_heap_bases()[env.rank])
        for label, address, size, wanted in (
            ("the first byte", base, 1, True),
            ("the last byte", base + (1 << 18) - 1, 1, True),
            ("the whole heap", base, 1 << 18, True),
            ("the byte before the heap", base - 1, 1, False),
            ("the byte after the heap", base + (1 << 18), 1, False),
            ("the first byte and the one before", base - 1, 2, False),
            ("the last byte and the next", base + (1 << 18) - 1, 2, False),
            ("more than the heap", base - 1, (1 << 18) + 2, False),
        ):
            findings.equal(f"is_symmetric of {label}", env.in_library(is_symmetric_at, other, address, size), wanted)
    env.settle()
    release(other)
    return findings.first


@requirement("HOST-SYMMETRIC-001", cases=lambda ranks: [HostCase("symmetric")])
def test_is_symmetric(check, case):
    check(run_symmetric, case)
