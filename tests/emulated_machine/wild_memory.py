"""Cuda tensors over memory that the machine does not have, run by ``test_bad_input`` on a machine with two GPUs."""

import ctypes
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from harness.errors import KernelFault
from tests.emulated_machine.hip.programs import Handle, allocated, hip, size

WAYS = {
    "as_tensor": lambda memory: torch.as_tensor(memory, device="cuda:0"),
    "asarray": lambda memory: torch.asarray(memory, device="cuda:0"),
    "tensor": lambda memory: torch.tensor(memory, device="cuda:0"),
    "as_tensor, GPU by address": lambda memory: torch.as_tensor(memory, device="cuda"),
    "as_tensor in inference": torch.inference_mode()(lambda memory: torch.as_tensor(memory, device="cuda:0")),
}


class Memory:
    """Memory of a program as a library passes it to torch."""

    def __init__(self, address, shape=(4,), strides=None):
        form = {"shape": shape, "strides": strides, "typestr": "<f4", "data": (address, False), "version": 2}
        self.__cuda_array_interface__ = form


@triton.jit
def first(source, target):
    """Example: [5, 6] stores 5."""
    tl.store(target, tl.load(source))


@triton.jit
def first_at(address, target):
    """Example: the address of [5, 6] stores 5."""
    tl.store(target, tl.load(address.to(tl.pointer_type(tl.float32))))


def refused(use, *parts):
    with pytest.raises(RuntimeError) as raised:
        use()
    for part in parts:
        assert part in str(raised.value), raised.value


def memory_that_the_machine_lacks_is_an_error_where_it_is_passed():
    host, floats, raw = ctypes.create_string_buffer(64), torch.arange(8.0, device="cuda"), allocated(4096)
    gone, gone_raw = torch.ones(8, device="cuda").data_ptr(), allocated(4096)
    assert hip.hipFree(gone_raw) == 0
    cases = {
        "wild": (Memory(0x1234000), 0x1234000),
        "null": (Memory(8), 8),
        "of the host": (Memory(ctypes.addressof(host)), ctypes.addressof(host)),
        "too short": (Memory(floats.data_ptr(), (9,)), floats.data_ptr()),
        "too short for the strides": (Memory(floats.data_ptr(), (2, 2), (28, 4)), floats.data_ptr()),
        "too short from the middle": (Memory(floats.data_ptr() + 16, (5,)), floats.data_ptr() + 16),
        "too short in HIP": (Memory(raw.value, (1025,)), raw.value),
        "behind the end": (Memory(raw.value + 4096), raw.value + 4096),
        "freed": (Memory(gone), gone),
        "freed in HIP": (Memory(gone_raw.value), gone_raw.value),
    }
    for make in WAYS.values():
        for memory, address in cases.values():
            refused(lambda make=make, memory=memory: make(memory), hex(address), "hipHostRegister")
    refused(lambda: WAYS["as_tensor"](cases["too short"][0]), "36 bytes", "ends after 32 bytes", "[9]")
    refused(lambda: WAYS["as_tensor"](cases["too short in HIP"][0]), "4100 bytes", "ends after 4096 bytes")
    refused(lambda: WAYS["as_tensor"](cases["freed in HIP"][0]), "freed by hipFree")
    refused(lambda: WAYS["as_tensor"](cases["freed"][0]), "was freed")
    assert floats.sum().item() == 28


def memory_that_the_machine_has_is_shared():
    floats, far, pinned = torch.ones(8, device="cuda"), torch.ones(8, device="cuda:1"), torch.ones(8).pin_memory()
    raw, host, registered = allocated(32), ctypes.c_void_p(), torch.ones(8)
    assert hip.hipHostMalloc(ctypes.byref(host), size(32), 0) == 0
    assert hip.hipHostRegister(ctypes.c_void_p(registered.data_ptr()), size(32), 0) == 0
    opened = _memory_of_another_process()
    tensors = [each.data_ptr() for each in (floats, far, pinned, registered)]
    for address in [*tensors, raw.value, host.value, opened.value]:
        for device in ("cuda:0", "cuda:1"):
            shared = torch.as_tensor(Memory(address, (8,)), device=device)
            assert shared.data_ptr() == address and shared.device == torch.device(device)
            shared.fill_(5)
            assert ctypes.string_at(address, 32) == bytes(torch.full((8,), 5.0).numpy())
        assert torch.as_tensor(Memory(address, (2, 2), (16, 8)), device="cuda").sum().item() == 20
        target = torch.zeros(1, device="cuda")
        first[(1,)](torch.as_tensor(Memory(address), device="cuda:0"), target)
        assert target.item() == 5
    assert torch.as_tensor(Memory(0, (0,)), device="cuda:0").sum().item() == 0
    x = torch.ones(3, device="cuda", requires_grad=True)
    x.to("cuda:1", torch.float64).sum().backward()  # passes the check, and autograd
    assert x.grad.tolist() == [1, 1, 1]
    compiled = torch.compile(lambda x: x.to("cuda:0", torch.float16) + 1, backend="eager")
    assert compiled(x).dtype == torch.float16  # traced with tensors that have no memory


EXPORT = """
import ctypes, sys
from tests.emulated_machine.hip.programs import Handle, allocated, hip
pointer, handle = allocated(4096), Handle()
assert hip.hipIpcGetMemHandle(ctypes.byref(handle), pointer) == 0
print(bytes(handle).hex(), flush=True)
sys.stdin.read()
"""


def _memory_of_another_process():
    other = subprocess.Popen([sys.executable, "-c", EXPORT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    handle, pointer = Handle.from_buffer_copy(bytes.fromhex(other.stdout.readline())), ctypes.c_void_p()
    assert hip.hipIpcOpenMemHandle(ctypes.byref(pointer), handle, 1) == 0
    other.communicate()  # the mapping keeps the memory
    return pointer


def memory_that_is_freed_later_is_an_error_at_each_use():
    raw, target = allocated(4096), torch.zeros(1, device="cuda")
    late = torch.as_tensor(Memory(raw.value), device="cuda:0")
    assert hip.hipFree(raw) == 0
    for use in (late.sum, late.cpu, late[1:].tolist, lambda: print(late), lambda: late.fill_(1),
                lambda: target.copy_(late[:1]), lambda: first[(1,)](late, target)):  # fmt: skip
        refused(use, hex(raw.value), "16 bytes", "freed by hipFree")


def kernels_fault_at_wild_addresses():
    target = torch.zeros(1, device="cuda")
    for address in (1 << 33, 1 << 62, (1 << 64) - 8, -(1 << 40), ctypes.addressof(ctypes.create_string_buffer(64))):
        with pytest.raises(KernelFault, match="outside every known allocation"):
            first_at[(1,)](address, target)


def wrong_handles_of_shared_storages_are_errors():
    new = torch.UntypedStorage._new_shared_cuda
    long = 1 << 40
    for handle in (b"garbage", b"\xff\xfe", b"0 ", f"0 {__file__}".encode(), b"0 /proc/self/fd/0"):
        with pytest.raises((RuntimeError, OSError)):
            new(0, handle, long, 0, b"", long, b"", False)
    x = torch.ones(8, device="cuda")
    _, handle, _, offset, _, whole, *_ = x.untyped_storage()._share_cuda_()
    for nbytes, start, total in ((32, whole, whole), (32, -1, whole), (32, offset, 2 * whole), (2 * whole, 0, whole)):
        with pytest.raises(RuntimeError, match="invalid argument"):
            new(0, handle, nbytes, start, b"", total, b"", False)


if __name__ == "__main__":
    for check in (
        memory_that_the_machine_lacks_is_an_error_where_it_is_passed,
        memory_that_the_machine_has_is_shared,
        memory_that_is_freed_later_is_an_error_at_each_use,
        kernels_fault_at_wild_addresses,
        wrong_handles_of_shared_storages_are_errors,
    ):
        print(check.__name__, flush=True)
        check()
    print("passed")
