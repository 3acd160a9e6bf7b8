"""A remote access that leaves the heap ends in a memory fault that names the kernel's source line.

The library does not check addresses, but the emulated device checks every lane's address. A fault is the result of the
rank that caused it; the other ranks, and the cases after it, continue. A GPU checks pages instead of heaps and names no
source line, so this test needs the emulated device.
"""

import inspect
from pathlib import Path

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.rma.words import Address
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from fixtures.findings import Findings
from fixtures.requirement import requirement
from fixtures.worker import heap_bytes
from harness.errors import KernelFault


def run(env, case):
    """Move an element on rank 0 to or from an address ``distance`` bytes from its heap's start. Other ranks do
    nothing."""
    name, distance, form = case.arguments
    op = TRANSFERS[name]
    findings = Findings(env.rank)
    env.image.reset()
    env.settle()
    if env.rank == 0:
        base = int(env.iris.get_heap_bases()[0])
        if distance == heap_bytes(env.world_size):  # the end of the heap, which may be larger
            distance = env.iris.heap_size
        keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)
        shape = TransferCase(n=1, form=form)
        near, far = env.pointer(4096, torch.int32), Address(base + distance)
        ends = (near, far) if op.pushes(shape) else (far, near)
        try:
            launch(env, op, shape, *ends, keep, env.world_size - 1)
            findings.note(f"a {name} outside the heap", "no fault", "a memory fault")
        except KernelFault as fault:
            text = f"{fault} {getattr(fault, 'where', {})}"
            library, kernel = WHERE[form]
            for word in ("operations.py", "kernels.py", kernel, *([library] if _has(env, library) else [])):
                findings.true(f"{word} in the fault {text}", word in text)
    env.settle()
    return env.image.difference() or findings.first


def _has(env, file):
    """Return whether the library keeps its device code in a file of this name; the published API names no files."""
    defined = env.in_library(source_file, env.device_context)
    return defined is not None and (Path(defined).parent.parent / file).is_file()


def source_file(env, kind):
    return inspect.getsourcefile(kind)


WHERE = {
    "gluon": ("gluon/context.py", "transfer_by_gluon"),
    "context": ("triton/ops.py", "transfer_by_context"),
    "function": ("triton/ops.py", "transfer_by_function"),
}
"""Texts that a fault contains besides the op's call and the kernel's file: the library's file and the kernel."""


def cases(ranks):
    """Return a case for every op far outside the heap, and cases just outside it in Gluon."""
    first = next(iter(TRANSFERS))
    near = [HostCase("fault", (first, distance, "gluon")) for distance in (-4, heap_bytes(ranks))]
    return [*near, *(HostCase("fault", (op, 1 << 34, form)) for form in FORMS for op in TRANSFERS)]


@requirement(
    "NEGATIVE-HEAP-001",
    cases=cases,
    device="emulated",
    because="a GPU checks pages instead of heaps and names no source line",
    weak=False,
)
def test_out_of_heap(check, case):
    check(run, case)
