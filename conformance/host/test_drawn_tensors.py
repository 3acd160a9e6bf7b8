"""Drawn calls of the tensor factories. For any size, form of the size, dtype, value, strides, out and generator, the
result equals torch's for the same arguments on the same device, has the same heap offset on all ranks, and no other
memory changes, nor the bytes up to the next allocation, to which an allocator rounds up.
"""

import torch

from conformance.host.cases import TensorCase
from conformance.host.checks import offset_in_heap
from conformance.support.instances import release
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

FACTORIES = (
    "zeros", "ones", "empty", "full", "zeros_like", "arange", "linspace", "rand", "randn", "randint", "uniform",
)  # fmt: skip
HEAP = 1 << 20
POISON = 0xA5


def run(env, case: TensorCase):
    findings, here = Findings(env.rank), env.device.torch_device
    theirs = wanted(case, here)
    iris = env.under_test.iris(heap_size=HEAP)
    frees = hasattr(iris, "free")
    if frees:  # fill the memory that the next allocations get
        iris.free(iris.empty(HEAP // 2, dtype=torch.uint8).fill_(POISON))
    low = iris.empty(case.before, dtype=torch.uint8).fill_(POISON)
    out = None
    if case.out is not None:
        out = iris.empty(theirs.numel() * theirs.itemsize, dtype=torch.uint8).fill_(POISON).view(theirs.dtype)
        out = out if case.out == "flat" else out.view(theirs.shape)
    got = _called(env, getattr(iris, case.factory), case, iris.get_device(), out)
    high = iris.empty(64, dtype=torch.uint8).fill_(POISON)

    label = case.factory
    findings.equal(f"shape of {label}", tuple(got.shape), tuple(theirs.shape))
    findings.equal(f"dtype of {label}", got.dtype, theirs.dtype)
    findings.equal(f"strides of {label}", tuple(got.stride()), tuple(theirs.stride()))
    findings.equal(f"device of {label}", got.device, iris.get_device())
    findings.equal(f"requires_grad of {label}", got.requires_grad, case.requires_grad)
    findings.true(f"{label} is on the heap", iris.is_symmetric(got))
    if case.factory != "empty":
        findings.same(label, got.detach(), theirs)
    if out is not None:
        findings.equal(f"address of {label} with out", address_of(got), address_of(out))
        findings.true("arange with out returns out itself", case.factory != "arange" or got is out)
    elif got.numel():
        findings.equal(f"alignment of {label}", address_of(got) % 1024, 0)
    if got.numel():
        offsets = gathered(torch.tensor([offset_in_heap(iris, got)]))
        findings.equal(f"offset of {label} on all ranks", len(set(offsets.tolist())), 1)
        findings.true(f"{label} ends before the next allocation", _end(got) <= address_of(high))
        padding = _between(got, high) if frees else None
        if padding is not None:
            findings.same(f"bytes after {label}, up to the next allocation", padding, torch.full_like(padding, POISON))
    for side, guard in (("before", low), ("after", high)):
        findings.true(f"memory {side} {label} is unchanged", bool((guard == POISON).all()))
    env.settle()
    release(iris)
    return findings.first


def _called(env, factory, case, device, out):
    """Call the library's factory with the case's arguments."""
    options = {} if case.dtype is None else {"dtype": getattr(torch, case.dtype)}
    if case.requires_grad:
        options["requires_grad"] = True
    if out is not None:
        options["out"] = out
    if case.device is not None:
        options["device"] = device.type if case.device == "kind" else device
    if case.memory_format is not None:
        options["memory_format"] = getattr(torch, case.memory_format)
    options |= _seeded(case, device, env.module("torch"))
    if case.factory == "zeros_like":
        return factory(_like(case, device), **options)
    if case.factory == "arange":
        return factory(*case.values, **options)
    size = {"tuple": (case.size,), "list": (list(case.size),), "nested": ((case.size,),)}.get(case.form, case.size)
    if case.factory == "linspace":
        steps = case.size[0] if case.form == "varargs" and len(case.size) == 1 else case.size
        return factory(*case.values, *(size if case.form != "varargs" else (steps,)), **options)
    if case.factory in ("full", "uniform"):
        return factory(*size, *case.values, **options)
    return factory(*case.values, *size, **options)


def wanted(case, device):
    """Return torch's tensor for the case's arguments, on the same device."""
    dtype = None if case.dtype is None else getattr(torch, case.dtype)
    options = {"dtype": dtype, "device": device}
    if case.factory == "zeros_like":
        return torch.zeros_like(_like(case, device), dtype=dtype, memory_format=_format(case, torch.preserve_format))
    if case.factory == "empty":
        return torch.empty(case.size, memory_format=_format(case, torch.contiguous_format), **options)
    if case.factory == "full":
        if dtype is None and isinstance(case.values[0], bool):
            options["dtype"] = torch.int64  # torch would infer bool; the Iris API specifies int64
        return torch.full(case.size, *case.values, **options)
    if case.factory == "arange":
        return torch.arange(*case.values, **options)
    if case.factory == "linspace":
        return torch.linspace(*case.values, torch.Size(case.size).numel(), **options)
    seeded = _seeded(case, device)
    if case.factory == "uniform":
        return torch.empty(case.size, dtype=dtype or torch.float32, device=device).uniform_(*case.values)
    return getattr(torch, case.factory)(*case.values, case.size, **seeded, **options)


def _seeded(case, device, library=torch):
    """Return the option that passes a seeded generator, or seed the device's default generator and return no option.
    ``library``: torch in the process that draws."""
    if case.factory not in ("rand", "randn", "randint", "uniform"):
        return {}
    if case.own_generator:
        return {"generator": torch.Generator(device).manual_seed(case.seed)}
    library.manual_seed(case.seed)
    return {}


def _like(case, device):
    if case.like == "transposed":
        return torch.empty(case.size[::-1], dtype=torch.int16, device=device).permute(
            tuple(reversed(range(len(case.size))))
        )
    if case.like == "every_second" and case.size:
        return torch.empty((*case.size[:-1], 2 * case.size[-1]), dtype=torch.int16, device=device)[..., ::2]
    return torch.empty(case.size, dtype=torch.int16, device=device)


def _format(case, default):
    """Return the effective memory format: a channels format is ignored with ``out`` or another number of dimensions."""
    if case.memory_format is None:
        return default
    fits = case.out is None and len(case.size) == (4 if case.memory_format == "channels_last" else 5)
    return getattr(torch, case.memory_format) if fits else torch.contiguous_format


def _end(tensor):
    """Return the end address of a dense tensor."""
    return address_of(tensor) + tensor.numel() * tensor.itemsize


def _between(tensor, following):
    """Return the bytes from the end of a dense tensor to another one; None if they are not parts of one pool."""
    pool = following.untyped_storage()
    if tensor.untyped_storage().data_ptr() != pool.data_ptr():
        return None
    memory = torch.empty(0, dtype=torch.uint8, device=following.device).set_(pool)
    return memory[tensor.data_ptr() + tensor.nbytes - pool.data_ptr() : following.data_ptr() - pool.data_ptr()]


def cases(ranks, factory):
    from conformance.host import strategies

    return strategies.tensors(factory)


@requirement("HOST-TENSOR-002", cases=cases, weight=4.0, factory=FACTORIES)
def test_drawn_tensors(check, case):
    check(run, case)
