"""Programs on HIP alone, run by ``test_programs`` in a process of their own on the emulated machine."""

import ctypes
import os
import subprocess
import sys

hip = ctypes.CDLL("libamdhip64.so")
INVALID, REFUSED = 1, 801


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("rest", ctypes.c_char * 64)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def size(value):
    return ctypes.c_size_t(value)


def allocated(nbytes=4096):
    pointer = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(pointer), size(nbytes)) == 0
    return pointer


def memory():
    pointer, back = allocated(400), (ctypes.c_ubyte * 400)()
    assert hip.hipMemset(pointer, 7, size(400)) == 0
    assert hip.hipMemcpy(back, pointer, size(400), 2) == 0 and set(back) == {7}
    assert hip.hipMemset(pointer, 7, size(401)) == INVALID
    assert hip.hipMalloc(ctypes.c_void_p(16), size(8)) == INVALID  # no place for the result
    assert hip.hipFree(ctypes.c_void_p(pointer.value + 4)) == INVALID
    assert hip.hipFree(pointer) == 0 and hip.hipFree(pointer) == INVALID
    assert hip.hipMemcpy(back, pointer, size(400), 2) == INVALID
    assert hip.hipGetLastError() == INVALID and hip.hipGetLastError() == 0
    assert hip.hipModuleLoad(None, None) == REFUSED


OPEN = """
import ctypes, sys
from tests.emulated_machine.hip.programs import Handle, hip
handle, pointer = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), ctypes.c_void_p()
status = hip.hipIpcOpenMemHandle(ctypes.byref(pointer), handle, 1)
if status == 0:
    ctypes.memmove(pointer, b"written!", 8)
    assert hip.hipIpcCloseMemHandle(pointer) == 0 and hip.hipIpcCloseMemHandle(pointer) == 1
print("status", status)
"""


def ipc():
    pointer, handle = allocated(), Handle()
    assert hip.hipIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(pointer.value + 64)) == 0
    assert _open_in_another_process(bytes(handle)) == 0
    assert ctypes.string_at(pointer.value + 64, 8) == b"written!"
    wrong = bytearray(bytes(handle))
    wrong[8] ^= 1
    assert _open_in_another_process(bytes(wrong)) != 0
    assert hip.hipFree(pointer) == 0
    assert _open_in_another_process(bytes(handle)) != 0


def _open_in_another_process(handle):
    done = subprocess.run([sys.executable, "-c", OPEN, handle.hex()], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def virtual_memory():
    properties = Properties(type=1, handles=1, location=Location(1, 0))
    handle, again, address, fd = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    length = size(2 << 20)
    assert hip.hipMemCreate(ctypes.byref(handle), length, ctypes.byref(properties), ctypes.c_ulonglong(0)) == 0
    assert hip.hipMemCreate(ctypes.byref(again), size(100), ctypes.byref(properties), ctypes.c_ulonglong(0)) == INVALID
    assert hip.hipMemAddressReserve(ctypes.byref(address), size(4 << 20), size(0), None, ctypes.c_ulonglong(0)) == 0
    assert hip.hipMemMap(address, length, size(0), handle, ctypes.c_ulonglong(0)) == 0
    assert hip.hipMemMap(address, length, size(0), handle, ctypes.c_ulonglong(0)) == INVALID
    assert hip.hipMemset(address, 1, size(8)) == INVALID  # no access yet
    access = Access(Location(1, 0), 3)
    assert hip.hipMemSetAccess(address, length, ctypes.byref(access), size(1)) == 0
    assert hip.hipMemset(address, 1, size(8)) == 0
    assert hip.hipMemExportToShareableHandle(ctypes.byref(fd), handle, 1, ctypes.c_ulonglong(0)) == 0
    assert hip.hipMemImportFromShareableHandle(ctypes.byref(again), ctypes.byref(fd), 1) == 0
    os.close(fd.value)
    assert hip.hipMemImportFromShareableHandle(ctypes.byref(again), ctypes.byref(fd), 1) == INVALID  # closed
    second = ctypes.c_void_p(address.value + (2 << 20))
    assert hip.hipMemMap(second, length, size(0), again, ctypes.c_ulonglong(0)) == 0
    assert hip.hipMemSetAccess(second, length, ctypes.byref(access), size(1)) == 0
    assert ctypes.string_at(second.value, 8) == b"\1" * 8
    assert hip.hipMemAddressFree(address, size(4 << 20)) == INVALID  # still mapped
    for place in (address, second):
        assert hip.hipMemUnmap(place, length) == 0 and hip.hipMemUnmap(place, length) == INVALID
    for memory_handle in (handle, again):
        assert hip.hipMemRelease(memory_handle) == 0 and hip.hipMemRelease(memory_handle) == INVALID
    assert hip.hipMemAddressFree(address, size(4 << 20)) == 0


def matrix_product():
    import torch
    from triton._C.libtriton import amd

    blas = amd.hipblas.HipblasLt(torch.empty(1024, device="cuda", dtype=torch.uint8))
    for dtype, tolerance in ((torch.float16, 2**-10), (torch.bfloat16, 2**-7), (torch.float32, 2**-20)):
        a, b = (torch.randn(rows, 70, device="cuda", dtype=dtype) for rows in (33, 45))
        c, d = torch.randn(33, 45, device="cuda", dtype=dtype), torch.empty(33, 45, device="cuda", dtype=dtype)
        expected = a.double() @ b.double().T
        blas.gemm(a, b, c, d, 2.0, -0.5)
        torch.testing.assert_close(d.double(), 2 * expected - 0.5 * c.double(), rtol=tolerance, atol=1e-4)
        blas.matmul(a, b, d)
        torch.testing.assert_close(d.double(), expected, rtol=tolerance, atol=1e-4)

    # Each rounding to float16 (to even, to infinity, subnormal, NaN) of high + low / 2, against torch's own.
    unit = 2**-24
    high = torch.tensor([1, 1, 65504, 65504, 0, unit, -unit, 0, torch.nan]).half()
    low = torch.tensor([2**-10, 3 * 2**-10, 30, 32, unit, unit, 0, 0, 0]).half()
    rounded = torch.empty(9, 1, device="cuda", dtype=torch.float16)
    blas.matmul(torch.stack([high, low], 1).cuda(), torch.tensor([[1, 0.5]]).half().cuda(), rounded)
    expected = (high.double() + low.double() / 2).half()
    torch.testing.assert_close(rounded.cpu()[:, 0], expected, rtol=0, atol=0, equal_nan=True)

    eight = torch.ones(16, 16, device="cuda").to(torch.float8_e4m3fn)
    refusal = "none"
    try:
        blas.matmul(eight, eight, torch.empty(16, 16, device="cuda", dtype=torch.float16))
    except RuntimeError as error:
        refusal = str(error)
    assert "NOT_SUPPORTED" in refusal, refusal


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("passed")
