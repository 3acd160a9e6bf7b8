"""A remote access that leaves the heap ends in a memory fault that names the kernel's source line.

The library checks nothing, so the device must: on the emulated one every lane's address is checked. One rank's fault
is its own result; the others, and the cases after it, go on. A GPU checks pages, not heaps, and names no line, so this
needs the emulated device.
"""

import torch

from conformance.rma import test_put
from conformance.rma.test_load import Address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from fixtures.worker import heap_bytes
from harness.cases import HostCase, TransferCase
from harness.errors import KernelFault


def run(env, case):
    """Rank 0 puts to an address ``distance`` bytes from its heap's start; the rest do nothing."""
    distance, form = case.arguments
    found = Findings(env.rank)
    env.image.reset()
    env.settle()
    if env.rank == 0:
        base = int(env.iris.get_heap_bases()[0])
        keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)
        try:
            test_put.launch(
                env,
                TransferCase(n=1, form=form),
                env.pointer(4096, torch.int32),
                Address(base + distance),
                keep,
                env.world_size - 1,
            )
            found.note("a put outside the heap", "no fault", "a memory fault")
        except KernelFault as fault:
            text = f"{fault} {getattr(fault, 'where', {})}"
            for word in ("test_put.py", *WHERE[form]):
                found.true(f"{word} in the fault {text}", word in text)
    env.settle()
    return env.image.difference() or found.first


WHERE = {
    "gluon": ("context.py", "put_kernel"),
    "context": ("ops.py", "put_by_context"),
    "function": ("ops.py", "put_by_function"),
}
"""What a fault names: the library's file and the kernel."""


def cases(ranks):
    triton = [HostCase("fault", (1 << 34, form)) for form in ("context", "function")]
    return [*(HostCase("fault", (distance, "gluon")) for distance in (-4, heap_bytes(ranks), 1 << 34)), *triton]


@requirement(
    "NEGATIVE-HEAP-001",
    cases=cases,
    device="emulated",
    because="a GPU checks pages instead of heaps and names no source line",
)
def test_out_of_heap(check, case):
    check(run, case)
