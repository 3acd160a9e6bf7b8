"""Drawn calls of the tensor factories: any size and form of it, dtype, value, strides, out and generator give what
torch gives for the same arguments on the same device, at one heap offset on all ranks, and nothing beside it changes.
"""

import torch

from conformance.host.checks import offset_in_heap
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

FACTORIES = (
    "zeros", "ones", "empty", "full", "zeros_like", "arange", "linspace", "rand", "randn", "randint", "uniform",
)  # fmt: skip
HEAP = 1 << 20
POISON = 0xA5


def run(env, case):
    found, here = Findings(env.rank), env.device.torch_device
    theirs = wanted(case, here)
    iris = env.under_test.iris(heap_size=HEAP)
    low = iris.empty(case.before, dtype=torch.uint8).fill_(POISON)
    out = None
    if case.out is not None:
        out = iris.empty(theirs.numel() * theirs.itemsize, dtype=torch.uint8).fill_(POISON).view(theirs.dtype)
        out = out if case.out == "flat" else out.view(theirs.shape)
    got = _called(getattr(iris, case.factory), case, iris.get_device(), out)
    high = iris.empty(64, dtype=torch.uint8).fill_(POISON)

    what = case.factory
    found.equal(f"shape of {what}", tuple(got.shape), tuple(theirs.shape))
    found.equal(f"dtype of {what}", got.dtype, theirs.dtype)
    found.equal(f"strides of {what}", tuple(got.stride()), tuple(theirs.stride()))
    found.equal(f"device of {what}", got.device, iris.get_device())
    found.equal(f"requires_grad of {what}", got.requires_grad, case.requires_grad)
    found.true(f"{what} is on the heap", iris.is_symmetric(got))
    if case.factory != "empty":
        found.same(what, got.detach(), theirs)
    if out is not None:
        found.equal(f"address of {what} with out", got.data_ptr(), out.data_ptr())
        found.true(f"{what} with out gives a view, or out itself", case.factory != "arange" or got is out)
    elif got.numel():
        found.equal(f"alignment of {what}", got.data_ptr() % 1024, 0)
    if got.numel():
        offsets = gathered(torch.tensor([offset_in_heap(iris, got)]))
        found.equal(f"offset of {what} on all ranks", len(set(offsets.tolist())), 1)
        found.true(f"{what} ends before what comes next", _end(got) <= high.data_ptr())
    for side, guard in (("before", low), ("behind", high)):
        found.true(f"memory {side} {what} is unchanged", bool((guard == POISON).all()))
    env.settle()
    iris.close()
    return found.first


def _called(factory, case, device, out):
    """The library's factory as the case calls it."""
    options = {} if case.dtype is None else {"dtype": getattr(torch, case.dtype)}
    if case.requires_grad:
        options["requires_grad"] = True
    if out is not None:
        options["out"] = out
    if case.device is not None:
        options["device"] = device.type if case.device == "kind" else device
    if case.memory_format is not None:
        options["memory_format"] = getattr(torch, case.memory_format)
    options |= _seeded(case, device)
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
    """torch's tensor, on the same device."""
    dtype = None if case.dtype is None else getattr(torch, case.dtype)
    options = {"dtype": dtype, "device": device}
    if case.factory == "zeros_like":
        return torch.zeros_like(_like(case, device), dtype=dtype, memory_format=_format(case, torch.preserve_format))
    if case.factory == "empty":
        return torch.empty(case.size, memory_format=_format(case, torch.contiguous_format), **options)
    if case.factory == "full":
        if dtype is None and isinstance(case.values[0], bool):
            options["dtype"] = torch.int64  # unlike torch
        return torch.full(case.size, *case.values, **options)
    if case.factory == "arange":
        return torch.arange(*case.values, **options)
    if case.factory == "linspace":
        return torch.linspace(*case.values, torch.Size(case.size).numel(), **options)
    seeded = _seeded(case, device)
    if case.factory == "uniform":
        return torch.empty(case.size, dtype=dtype or torch.float32, device=device).uniform_(*case.values)
    return getattr(torch, case.factory)(*case.values, case.size, **seeded, **options)


def _seeded(case, device):
    """The option that names a generator, or the device's own generator in that state."""
    if case.factory not in ("rand", "randn", "randint", "uniform"):
        return {}
    if case.own_generator:
        return {"generator": torch.Generator(device).manual_seed(case.seed)}
    torch.manual_seed(case.seed)
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
    """The memory format that counts: those of channels are for 4 or 5 dimensions without out, else ignored."""
    if case.memory_format is None:
        return default
    fits = case.out is None and len(case.size) == (4 if case.memory_format == "channels_last" else 5)
    return getattr(torch, case.memory_format) if fits else torch.contiguous_format


def _end(tensor):
    """The address behind a dense tensor."""
    return tensor.data_ptr() + tensor.numel() * tensor.itemsize


def cases(ranks, factory):
    from harness.cases import tensor_strategies

    return tensor_strategies.tensors(factory)


@requirement("HOST-TENSOR-002", cases=cases, factory=FACTORIES)
def test_drawn_tensors(check, case):
    check(run, case)
