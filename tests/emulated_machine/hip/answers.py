"""Values and error codes of HIP's calls, run by ``test_programs`` in one process on an emulated machine with two GPUs.

The codes are those of the comments in AMD's ``hip_runtime_api.h``, and of ROCm where the comments leave them open.
"""

import ctypes
import mmap
import time

from tests.emulated_machine.hip.programs import allocated, hip, size

OK, INVALID_VALUE, OUT_OF_MEMORY, BAD_PITCH, BAD_DIRECTION, BAD_DEVICE = 0, 1, 2, 12, 21, 101
BAD_CONTEXT, BAD_HANDLE, ENABLED, NOT_ENABLED, DESTROYED, REFUSED = 201, 400, 704, 705, 709, 801
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
WILD = ctypes.c_void_p(0x12340)
CPU = -1
HUGE = size(-1)


def made(create, *arguments):
    """Return the handle or the address that a call writes to its first argument."""
    result = ctypes.c_void_p()
    assert create(ctypes.byref(result), *arguments) == OK
    return result


def written(function, kind, *arguments):
    """Return the value that a call writes to its last argument."""
    value = kind(-77)
    assert function(*arguments, ctypes.byref(value)) == OK
    return value.value


def device_of(pointer):
    device = ctypes.c_int(-77)
    assert hip.hipPointerGetAttribute(ctypes.byref(device), 9, pointer) == OK  # HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return device.value


class Pages:
    """Two pages of host memory with a permission, and a page without any permission behind them."""

    def __init__(self, permission):
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = libc.mmap(None, size(3 * 4096), 3, flags, -1, size(0))
        self.end = self.address + 2 * 4096
        assert libc.mprotect(ctypes.c_void_p(self.address), size(2 * 4096), permission) == 0
        assert libc.mprotect(ctypes.c_void_p(self.end), size(4096), 0) == 0


def events():
    blocking, untimed, interprocess, to_device, to_system, no_fence = 1, 2, 4, 1 << 30, 1 << 31, 1 << 29
    create, elapsed = hip.hipEventCreateWithFlags, hip.hipEventElapsedTime
    for flags in (0, blocking, untimed, interprocess | untimed, to_device, to_system, no_fence, blocking | untimed):
        assert hip.hipEventDestroy(made(create, ctypes.c_uint(flags))) == OK
    event = ctypes.c_void_p()
    for flags in (8, 1 << 20, interprocess, to_device | to_system, to_system | no_fence):
        assert create(ctypes.byref(event), ctypes.c_uint(flags)) == INVALID_VALUE, flags
    assert create(None, 0) == hip.hipEventCreate(WILD) == INVALID_VALUE

    start, stop, milliseconds = made(hip.hipEventCreate), made(hip.hipEventCreate), ctypes.c_float(-1)
    for call in (hip.hipEventQuery, hip.hipEventSynchronize):
        assert call(start) == OK  # also before it is recorded
        assert call(None) == call(WILD) == BAD_HANDLE
    assert hip.hipStreamWaitEvent(None, start, 0) == OK
    place = ctypes.byref(milliseconds)
    assert elapsed(place, start, stop) == BAD_HANDLE
    assert hip.hipEventRecord(start, None) == OK
    assert elapsed(place, start, stop) == elapsed(place, stop, start) == BAD_HANDLE and milliseconds.value == -1
    time.sleep(0.02)
    assert hip.hipEventRecordWithFlags(stop, None, 1) == OK  # hipEventRecordExternal
    assert hip.hipEventRecordWithFlags(stop, None, 2) == INVALID_VALUE
    assert elapsed(place, start, stop) == OK and 20 <= milliseconds.value < 20_000
    forward = milliseconds.value
    assert elapsed(place, stop, start) == OK and milliseconds.value == -forward
    assert elapsed(place, start, start) == OK and milliseconds.value == 0
    assert hip.hipEventRecord(start, None) == OK  # replaces the time
    assert elapsed(place, start, stop) == OK and milliseconds.value < 0
    assert elapsed(None, start, stop) == elapsed(ctypes.c_void_p(16), start, stop) == INVALID_VALUE
    assert elapsed(place, None, stop) == elapsed(place, start, None) == elapsed(place, WILD, stop) == BAD_HANDLE

    silent = made(create, untimed)
    assert hip.hipEventRecord(silent, None) == OK and elapsed(place, start, silent) == BAD_HANDLE
    assert hip.hipSetDevice(1) == OK
    far, far_stream = made(hip.hipEventCreate), made(hip.hipStreamCreate)
    assert hip.hipEventRecord(far, None) == OK and elapsed(place, start, far) == BAD_HANDLE
    assert hip.hipEventRecord(start, far_stream) == BAD_HANDLE  # the stream is another device's
    assert hip.hipStreamWaitEvent(far_stream, start, 0) == OK  # the event may be
    assert hip.hipSetDevice(0) == OK and hip.hipEventRecord(far, far_stream) == OK
    assert hip.hipEventRecord(None, None) == hip.hipEventRecord(WILD, None) == BAD_HANDLE
    assert hip.hipEventRecord(start, WILD) == BAD_HANDLE

    assert hip.hipStreamDestroy(far_stream) == OK
    for each in (start, stop, silent, far):
        assert hip.hipEventDestroy(each) == OK and hip.hipEventDestroy(each) == DESTROYED
        assert hip.hipEventQuery(each) == hip.hipEventRecord(each, None) == BAD_HANDLE
    assert hip.hipEventDestroy(None) == BAD_HANDLE
    assert hip.hipIpcGetEventHandle(None, None) == hip.hipIpcOpenEventHandle(None, None) == REFUSED


def streams():
    low, high = ctypes.c_int(), ctypes.c_int()
    assert hip.hipDeviceGetStreamPriorityRange(ctypes.byref(low), ctypes.byref(high)) == OK
    assert (low.value, high.value) == (1, -1) and hip.hipDeviceGetStreamPriorityRange(None, None) == OK
    for wanted, received in ((-9, -1), (-1, -1), (0, 0), (1, 1), (9, 1)):
        stream = made(hip.hipStreamCreateWithPriority, 1, wanted)
        assert written(hip.hipStreamGetPriority, ctypes.c_int, stream) == received
        assert written(hip.hipStreamGetFlags, ctypes.c_uint, stream) == 1
        assert hip.hipStreamDestroy(stream) == OK and hip.hipStreamDestroy(stream) == BAD_HANDLE
    assert hip.hipSetDevice(1) == OK
    first, second = made(hip.hipStreamCreate), made(hip.hipStreamCreateWithFlags, 0)
    assert hip.hipSetDevice(0) == OK
    assert written(hip.hipStreamGetDevice, ctypes.c_int, first) == 1
    assert written(hip.hipStreamGetDevice, ctypes.c_int, None) == 0
    assert written(hip.hipStreamGetFlags, ctypes.c_uint, first) == 0
    assert written(hip.hipStreamGetPriority, ctypes.c_int, None) == 0
    ids = [written(hip.hipStreamGetId, ctypes.c_ulonglong, each) for each in (None, first, second)]
    assert len(set(ids)) == 3
    assert written(hip.hipStreamIsCapturing, ctypes.c_int, first) == 0
    flags = ctypes.c_uint()
    assert hip.hipStreamGetFlags(None, ctypes.byref(flags)) == hip.hipStreamGetFlags(first, None) == INVALID_VALUE
    assert hip.hipStreamGetFlags(WILD, ctypes.byref(flags)) == BAD_HANDLE
    assert hip.hipStreamGetPriority(first, None) == hip.hipStreamGetDevice(first, None) == INVALID_VALUE
    for call in (hip.hipStreamQuery, hip.hipStreamSynchronize):
        assert call(first) == call(None) == call(ctypes.c_void_p(1)) == call(ctypes.c_void_p(2)) == OK
        assert call(WILD) == BAD_HANDLE
    stream = ctypes.c_void_p()
    assert hip.hipStreamCreateWithFlags(ctypes.byref(stream), 2) == hip.hipStreamCreate(None) == INVALID_VALUE
    assert hip.hipStreamDestroy(None) == hip.hipStreamDestroy(WILD) == hip.hipStreamDestroy(size(2)) == BAD_HANDLE

    event = made(hip.hipEventCreate)
    assert hip.hipStreamWaitEvent(first, event, 0) == hip.hipStreamWaitEvent(first, event, 1) == OK
    assert hip.hipStreamWaitEvent(first, event, 2) == INVALID_VALUE
    assert hip.hipStreamWaitEvent(first, None, 0) == hip.hipStreamWaitEvent(WILD, event, 0) == BAD_HANDLE

    calls = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = kind(lambda stream, status, data: calls.append((stream, status, data, hip.hipGetLastError())))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(calls.append)
    hip.hipGetLastError()
    assert hip.hipStreamAddCallback(first, callback, ctypes.c_void_p(55), 0) == OK
    assert hip.hipLaunchHostFunc(first, function, ctypes.c_void_p(66)) == OK
    assert calls == [(first.value, OK, 55, OK), 66]
    assert (
        hip.hipStreamAddCallback(first, callback, None, 1) == hip.hipLaunchHostFunc(first, None, None) == INVALID_VALUE
    )
    assert (
        hip.hipStreamAddCallback(WILD, callback, None, 0) == hip.hipLaunchHostFunc(WILD, function, None) == BAD_HANDLE
    )
    assert hip.hipStreamAddCallback(first, None, None, 0) == INVALID_VALUE and len(calls) == 2

    for each in (first, second):
        assert hip.hipStreamDestroy(each) == OK
        assert hip.hipStreamQuery(each) == hip.hipStreamSynchronize(each) == BAD_HANDLE
        assert hip.hipMemsetAsync(allocated(), 0, size(8), each) == BAD_HANDLE


def copies_of_rectangles():
    """Rows of 5 bytes: out of rows of 8 bytes on the host, to rows of 16 on the device, to rows of 6 on the host."""
    source = (ctypes.c_ubyte * 24)(*range(24))
    device, other = allocated(4096), allocated(4096)
    assert hip.hipMemset(device, 0xEE, size(4096)) == OK
    copy = hip.hipMemcpy2D
    for kind in (HOST_TO_DEVICE, DEFAULT):
        assert copy(device, size(16), source, size(8), size(5), size(3), kind) == OK
    raw = ctypes.string_at(device.value, 48)
    assert [raw[16 * row : 16 * row + 5] for row in range(3)] == [
        bytes(range(8 * row, 8 * row + 5)) for row in range(3)
    ]
    assert all(raw[16 * row + 5 : 16 * row + 16] == b"\xee" * 11 for row in range(3))  # what lies between stays
    assert copy(other, size(7), device, size(16), size(5), size(3), DEVICE_TO_DEVICE) == OK
    back = (ctypes.c_ubyte * 18)(*[99] * 18)
    assert copy(back, size(6), other, size(7), size(5), size(3), DEVICE_TO_HOST) == OK
    rows = [value for row in range(3) for value in [*range(8 * row, 8 * row + 5), 99]]
    assert list(back) == rows
    again = (ctypes.c_ubyte * 18)(*[99] * 18)
    assert copy(again, size(6), back, size(6), size(5), size(3), HOST_TO_HOST) == OK and list(again) == rows
    assert hip.hipMemcpy2DAsync(again, size(5), source, size(5), size(5), size(3), HOST_TO_HOST, None) == OK
    assert list(again)[:15] == list(range(15))  # without gaps

    overlap = (ctypes.c_ubyte * 8)(*range(8))
    shifted = ctypes.c_void_p(ctypes.addressof(overlap) + 2)
    assert copy(shifted, size(8), overlap, size(8), size(6), size(1), HOST_TO_HOST) == OK
    assert list(overlap) == [0, 1, 0, 1, 2, 3, 4, 5]

    for width, height in ((0, 3), (5, 0), (0, 0)):
        assert copy(None, size(0), None, size(0), size(width), size(height), DEFAULT) == OK
    assert copy(device, size(4), source, size(8), size(5), size(3), HOST_TO_DEVICE) == BAD_PITCH
    assert copy(device, size(16), source, size(4), size(5), size(3), HOST_TO_DEVICE) == BAD_PITCH
    assert copy(device, size(1 << 31), source, size(8), size(5), size(1), HOST_TO_DEVICE) == INVALID_VALUE
    assert copy(device, size(16), source, size(8), size(5), size(3), 5) == BAD_DIRECTION
    assert copy(device, size(16), source, size(8), size(5), size(3), -1) == BAD_DIRECTION
    for target, origin in ((None, source), (device, None), (WILD, source), (device, WILD)):
        assert copy(target, size(16), origin, size(8), size(5), size(3), DEFAULT) == INVALID_VALUE
    assert hip.hipMemcpy2DAsync(device, size(16), source, size(8), size(5), size(3), 1, WILD) == BAD_HANDLE

    # The last row ends behind the allocation: no row is copied.
    assert hip.hipMemset(device, 1, size(4096)) == OK
    wide = (ctypes.c_ubyte * (8192))()
    assert copy(device, size(2048), wide, size(2048), size(2048), size(3), HOST_TO_DEVICE) == INVALID_VALUE
    assert ctypes.string_at(device.value, 4096) == b"\1" * 4096
    assert copy(device, size(2048), wide, size(2048), size(2048), size(2), HOST_TO_DEVICE) == OK
    for height in (HUGE, size(1 << 60)):
        assert copy(device, size(16), source, size(16), size(5), height, HOST_TO_DEVICE) == INVALID_VALUE

    fill = hip.hipMemset2D
    assert fill(device, size(16), 7, size(5), size(256)) == OK
    assert ctypes.string_at(device.value, 32) == (b"\7" * 5 + b"\0" * 11) * 2
    assert fill(device, size(4), 7, size(5), size(1)) == fill(device, size(16), 7, size(5), HUGE) == INVALID_VALUE
    assert fill(device, size(2048), 9, size(2048), size(3)) == INVALID_VALUE
    assert ctypes.string_at(device.value, 5) == b"\7" * 5  # nothing was filled
    assert fill(source, size(8), 7, size(5), size(3)) == fill(None, size(8), 7, size(5), size(3)) == INVALID_VALUE
    assert fill(None, size(0), 7, size(0), size(3)) == OK
    for pointer in (device, other):
        assert hip.hipFree(pointer) == OK


def managed_memory():
    pointer = made(hip.hipMallocManaged, size(8192), 1)
    ctypes.memmove(pointer, b"written by the host", 19)
    assert ctypes.string_at(pointer.value, 19) == b"written by the host"
    managed, kind = ctypes.c_uint(), ctypes.c_uint()
    assert hip.hipPointerGetAttribute(ctypes.byref(managed), 8, pointer) == OK and managed.value == 1
    assert hip.hipPointerGetAttribute(ctypes.byref(kind), 2, pointer) == OK and kind.value == 3  # hipMemoryTypeManaged
    again = ctypes.c_void_p()
    assert hip.hipHostGetDevicePointer(ctypes.byref(again), pointer, 0) == OK and again.value == pointer.value
    for device in (CPU, 0, 1):
        assert hip.hipMemPrefetchAsync(pointer, size(8192), device, None) == OK
    for advice in (1, 2, 3, 4, 5, 6, 100, 101):
        assert hip.hipMemAdvise(pointer, size(8192), advice, 0) == OK
    for advice in (-1, 0, 7, 50, 99, 102):
        assert hip.hipMemAdvise(pointer, size(8192), advice, 0) == INVALID_VALUE, advice
    for device in (-2, 2, 99):
        assert hip.hipMemPrefetchAsync(pointer, size(8), device, None) == BAD_DEVICE
        assert hip.hipMemAdvise(pointer, size(8), 1, device) == BAD_DEVICE
    for address, nbytes in ((None, 8), (pointer, 0), (pointer, 8193), (WILD, 8), (allocated(), 8)):
        assert hip.hipMemPrefetchAsync(address, size(nbytes), 0, None) == INVALID_VALUE
        assert hip.hipMemAdvise(address, size(nbytes), 1, 0) == INVALID_VALUE
    assert hip.hipMemPrefetchAsync(pointer, size(8), 0, WILD) == BAD_HANDLE
    wrong = ctypes.c_void_p()
    for nbytes, flags in ((0, 1), (8, 0), (8, 4), (8, 3)):
        assert hip.hipMallocManaged(ctypes.byref(wrong), size(nbytes), flags) == INVALID_VALUE
    assert hip.hipMallocManaged(None, size(8), 1) == INVALID_VALUE
    assert hip.hipHostFree(pointer) == INVALID_VALUE
    assert hip.hipFree(pointer) == OK and hip.hipFree(pointer) == INVALID_VALUE
    assert hip.hipMemAdvise(pointer, size(8), 1, 0) == INVALID_VALUE


def pools():
    pool, far_pool, place = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for get in (hip.hipDeviceGetDefaultMemPool, hip.hipDeviceGetMemPool):
        assert get(ctypes.byref(pool), 0) == get(ctypes.byref(far_pool), 1) == OK and pool.value != far_pool.value
        assert get(None, 0) == INVALID_VALUE
    for device in (-1, 2):
        assert hip.hipDeviceGetDefaultMemPool(ctypes.byref(place), device) == BAD_DEVICE
        assert hip.hipDeviceGetMemPool(ctypes.byref(place), device) == INVALID_VALUE
        assert hip.hipDeviceSetMemPool(device, pool) == INVALID_VALUE
    assert hip.hipDeviceSetMemPool(0, pool) == OK and hip.hipDeviceSetMemPool(0, far_pool) == BAD_DEVICE
    assert hip.hipDeviceSetMemPool(0, None) == hip.hipDeviceSetMemPool(0, WILD) == INVALID_VALUE
    assert hip.hipMemPoolTrimTo(pool, size(0)) == OK
    assert hip.hipMemPoolTrimTo(None, size(0)) == hip.hipMemPoolTrimTo(WILD, size(0)) == INVALID_VALUE

    assert hip.hipSetDevice(1) == OK
    far_stream = made(hip.hipStreamCreate)
    assert hip.hipSetDevice(0) == OK
    mine, far = made(hip.hipMallocAsync, size(100), None), made(hip.hipMallocAsync, size(100), far_stream)
    pooled = made(hip.hipMallocFromPoolAsync, size(100), far_pool, None)
    assert [device_of(each) for each in (mine, far, pooled)] == [0, 1, 1]  # of the stream, or of the pool
    assert hip.hipMemset(far, 5, size(100)) == OK and hip.hipMemset(far, 5, size(101)) == INVALID_VALUE
    assert hip.hipMallocAsync(ctypes.byref(place), size(0), None) == OK and place.value is None
    assert hip.hipMallocAsync(None, size(8), None) == INVALID_VALUE
    assert hip.hipMallocAsync(ctypes.byref(place), size(8), WILD) == INVALID_VALUE
    assert hip.hipMallocAsync(ctypes.byref(place), HUGE, None) == OUT_OF_MEMORY
    for bad in (None, WILD):
        assert hip.hipMallocFromPoolAsync(ctypes.byref(place), size(8), bad, None) == INVALID_VALUE
    assert hip.hipMallocFromPoolAsync(ctypes.byref(place), size(1 << 50), pool, None) == OUT_OF_MEMORY
    assert hip.hipFreeAsync(None, None) == hip.hipFreeAsync(mine, WILD) == hip.hipFreeAsync(WILD, None) == INVALID_VALUE
    assert hip.hipFreeAsync(mine, far_stream) == OK and hip.hipFreeAsync(mine, None) == INVALID_VALUE
    assert hip.hipFreeAsync(far, None) == hip.hipFree(pooled) == hip.hipStreamDestroy(far_stream) == OK
    for name in ("Create", "Destroy", "GetAttribute", "SetAttribute", "SetAccess", "GetAccess", "ExportPointer"):
        assert getattr(hip, f"hipMemPool{name}")(None, None, None) == REFUSED


def peers():
    can, enable, disable = ctypes.c_int(-1), hip.hipDeviceEnablePeerAccess, hip.hipDeviceDisablePeerAccess
    for device, peer, expected in ((0, 1, 1), (1, 0, 1), (0, 0, 0)):
        assert hip.hipDeviceCanAccessPeer(ctypes.byref(can), device, peer) == OK and can.value == expected
    for device, peer in ((0, 2), (2, 0), (-1, 0), (0, -1)):
        assert hip.hipDeviceCanAccessPeer(ctypes.byref(can), device, peer) == BAD_DEVICE
    assert hip.hipDeviceCanAccessPeer(None, 0, 1) == INVALID_VALUE
    assert disable(1) == NOT_ENABLED
    assert enable(1, 0) == OK and enable(1, 0) == ENABLED
    assert hip.hipGetLastError() == ENABLED and hip.hipGetLastError() == OK
    assert enable(1, 1) == INVALID_VALUE
    for peer in (0, 2, -1, 99):
        assert enable(peer, 0) == disable(peer) == BAD_DEVICE
    assert hip.hipSetDevice(1) == OK and disable(0) == NOT_ENABLED  # access has a direction
    far = allocated(64)
    assert hip.hipSetDevice(0) == OK and disable(1) == OK and disable(1) == NOT_ENABLED
    near = allocated(64)
    assert hip.hipMemset(near, 3, size(64)) == OK
    assert hip.hipMemcpyPeer(far, 1, near, 0, size(64)) == OK  # also without peer access
    assert ctypes.string_at(far.value, 64) == b"\3" * 64
    assert hip.hipMemset(far, 4, size(64)) == OK
    assert hip.hipMemcpyPeerAsync(near, 0, far, 1, size(64), None) == OK
    assert ctypes.string_at(near.value, 64) == b"\4" * 64
    for target, source in ((2, 0), (0, 2), (-1, 0), (0, -1)):
        assert hip.hipMemcpyPeer(far, target, near, source, size(64)) == BAD_DEVICE
    assert hip.hipMemcpyPeer(far, 1, near, 0, size(65)) == hip.hipMemcpyPeer(None, 1, near, 0, size(8)) == INVALID_VALUE
    assert hip.hipMemcpyPeer(far, 1, WILD, 0, size(8)) == INVALID_VALUE
    assert hip.hipMemcpyPeer(None, 1, None, 0, size(0)) == OK
    assert hip.hipMemcpyPeerAsync(far, 1, near, 0, size(8), WILD) == BAD_HANDLE
    value = ctypes.c_int()
    for attribute, expected in ((0, 1), (1, 1), (2, 1), (3, 0)):  # there are no arrays
        assert hip.hipDeviceGetP2PAttribute(ctypes.byref(value), attribute, 0, 1) == OK and value.value == expected
    assert hip.hipDeviceGetP2PAttribute(ctypes.byref(value), 99, 0, 1) == INVALID_VALUE
    assert hip.hipDeviceGetP2PAttribute(ctypes.byref(value), 1, 0, 0) == BAD_DEVICE


def wrong_addresses():
    """Addresses that a program must not pass: an error, and never the end of the process."""
    device, host, back = allocated(4096), made(hip.hipHostMalloc, size(4096), 0), (ctypes.c_ubyte * 16)()
    read_only, writable = Pages(mmap.PROT_READ), Pages(mmap.PROT_READ | mmap.PROT_WRITE)
    copy = hip.hipMemcpy
    assert copy(device, ctypes.c_void_p(read_only.address), size(8192), HOST_TO_DEVICE) == INVALID_VALUE  # too many
    assert copy(device, ctypes.c_void_p(read_only.address), size(4096), HOST_TO_DEVICE) == OK
    assert copy(ctypes.c_void_p(read_only.address), device, size(8), DEVICE_TO_HOST) == INVALID_VALUE
    assert copy(device, ctypes.c_void_p(writable.end), size(8), HOST_TO_DEVICE) == INVALID_VALUE
    assert copy(device, ctypes.c_void_p(writable.end - 4), size(8), HOST_TO_DEVICE) == INVALID_VALUE
    assert copy(ctypes.c_void_p(writable.end - 8), device, size(8), DEVICE_TO_HOST) == OK
    assert copy(ctypes.c_void_p(writable.end), device, size(8), DEVICE_TO_HOST) == INVALID_VALUE
    for nbytes in (4097, 1 << 47, 1 << 62, -1):
        assert copy(back, device, size(nbytes), DEVICE_TO_HOST) == INVALID_VALUE
        assert hip.hipMemset(device, 0, size(nbytes)) == INVALID_VALUE
    assert hip.hipMemsetD32(device, 0, size((1 << 62) + 1)) == hip.hipMemsetD32(size(device.value + 2), 0, size(1)) == 1
    assert hip.hipMemset(back, 0, size(16)) == INVALID_VALUE  # memory of the host, unregistered
    for result in (read_only.address, read_only.end, writable.end - 4, writable.end):
        place = ctypes.c_void_p(result)
        assert hip.hipMalloc(place, size(8)) == hip.hipStreamCreate(place) == hip.hipEventCreate(place) == INVALID_VALUE
        assert hip.hipMemGetInfo(place, None) == hip.hipGetDevicePropertiesR0600(place, 0) == INVALID_VALUE
        assert hip.hipPointerGetAttribute(place, 11, device) == INVALID_VALUE  # HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR
    ctypes.memset(writable.address, ord("h"), 8192)
    name, place = ctypes.c_void_p(writable.end - 6), ctypes.c_void_p()  # "hhhhhh" without an end
    assert hip.hipGetProcAddress(name, ctypes.byref(place), 60400, size(0), None) == INVALID_VALUE
    assert hip.hipDeviceGetByPCIBusId(ctypes.byref(ctypes.c_int()), name) == INVALID_VALUE
    assert hip.hipGetProcAddress(b"hipMalloc", ctypes.byref(place), 60400, size(0), None) == OK and place.value
    short = ctypes.create_string_buffer(30)
    assert hip.hipDeviceGetName(short, 2**31 - 1, 0) == OK and short.value == b"AMD Instinct MI300X"
    for ordinal in (-1, 2, 2**31 - 1):
        assert hip.hipSetDevice(ordinal) == hip.hipDeviceGetName(short, 30, ordinal) == BAD_DEVICE
        assert hip.hipDeviceGetAttribute(ctypes.byref(ctypes.c_int()), 1, ordinal) == BAD_DEVICE
    for attribute in (-1, 9999, 2**31 - 1):
        assert hip.hipDeviceGetAttribute(ctypes.byref(ctypes.c_int()), attribute, 0) == INVALID_VALUE

    # Each kind of memory has its own call that frees it.
    assert hip.hipFree(host) == hip.hipHostFree(device) == hip.hipFreeHost(device) == INVALID_VALUE
    assert hip.hipHostRegister(ctypes.c_void_p(writable.address), size(8192), 0) == OK
    assert hip.hipHostFree(ctypes.c_void_p(writable.address)) == INVALID_VALUE
    assert hip.hipHostRegister(ctypes.c_void_p(writable.address + 64), size(64), 0) == 712
    assert hip.hipHostUnregister(ctypes.c_void_p(writable.address)) == OK
    assert hip.hipHostUnregister(ctypes.c_void_p(writable.address)) == 713
    middle = ctypes.c_void_p(writable.address + 4096)
    assert hip.hipHostRegister(middle, size(64), 0) == OK
    assert hip.hipHostRegister(ctypes.c_void_p(writable.address), size(8192), 0) == 712  # it lies inside
    assert hip.hipHostUnregister(middle) == OK
    for pointer in (host, WILD):
        assert hip.hipIpcCloseMemHandle(pointer) == INVALID_VALUE
    assert hip.hipHostFree(host) == hip.hipFree(device) == OK
    assert hip.hipHostFree(host) == hip.hipFree(device) == INVALID_VALUE
    assert hip.hipFree(None) == hip.hipHostFree(None) == OK
    for nbytes in (HUGE, size(1 << 62), size(1 << 47)):
        assert hip.hipMalloc(ctypes.byref(place), nbytes) == hip.hipHostMalloc(ctypes.byref(place), nbytes, 0) == 2
    pitch = ctypes.c_size_t()
    for width, height in ((-1, 1), (1 << 32, 1 << 40)):
        status = hip.hipMallocPitch(ctypes.byref(place), ctypes.byref(pitch), size(width), size(height))
        assert status == OUT_OF_MEMORY


def matrix_products():
    """hipBLASLt: the values are checked in ``programs.matrix_product``; here its errors, and a product of integers."""
    blas = ctypes.CDLL("libhipblaslt.so")
    success, wrong, unsupported = 0, 3, 7
    handle, preference = made(blas.hipblasLtCreate), made(blas.hipblasLtMatmulPreferenceCreate)
    product = made(blas.hipblasLtMatmulDescCreate, 2, 0)
    square = made(blas.hipblasLtMatrixLayoutCreate, 0, size(2), size(2), size(2))
    tall = made(blas.hipblasLtMatrixLayoutCreate, 0, size(3), size(2), size(3))
    huge = made(blas.hipblasLtMatrixLayoutCreate, 0, size(2), size(1 << 62), size(2))
    eight = made(blas.hipblasLtMatrixLayoutCreate, 1000, size(2), size(2), size(2))
    one_place = ctypes.byref(ctypes.c_float(1))
    zero, numbers = ctypes.c_float(0), ctypes.c_float * 4
    a, b, d = allocated(16), allocated(16), allocated(16)
    for place, values in ((a, (1, 2, 3, 4)), (b, (5, 6, 7, 8))):
        ctypes.memmove(place, numbers(*values), 16)

    def multiply(product=product, a=a, b=b, d=d, layout=square, last=square, handle=handle, alpha=one_place):
        return blas.hipblasLtMatmul(
            handle,
            product,
            alpha,
            a,
            layout,
            b,
            layout,
            ctypes.byref(zero),
            d,
            last,
            d,
            last,
            None,
            None,
            size(0),
            None,
        )

    assert multiply() == success and numbers.from_address(d.value)[:] == [23, 34, 31, 46]  # by columns
    transposed = ctypes.c_int(112)
    assert blas.hipblasLtMatmulDescSetAttribute(product, 0, ctypes.byref(transposed), size(4)) == success
    assert multiply() == success and numbers.from_address(d.value)[:] == [17, 39, 23, 53]
    assert multiply(d=allocated(4096), last=tall) == wrong  # the sizes differ
    for bad in (None, WILD, product, a):
        assert multiply(handle=bad) == multiply(layout=bad) == multiply(last=bad) == multiply(alpha=size(8)) == wrong
        assert blas.hipblasLtDestroy(bad) == blas.hipblasLtMatrixLayoutDestroy(bad) == wrong
    assert multiply(product=square) == wrong
    for bad in (None, WILD):
        assert multiply(a=bad) == multiply(b=bad) == multiply(d=bad) == wrong
    assert multiply(layout=huge, last=huge) == wrong
    assert multiply(layout=eight) == unsupported
    assert blas.hipblasLtMatmulDescSetAttribute(product, 2, ctypes.byref(transposed), size(4)) == unsupported
    assert blas.hipblasLtMatmulDescSetAttribute(product, 0, WILD, size(4)) == wrong
    assert blas.hipblasLtMatmulDescCreate(ctypes.byref(ctypes.c_void_p()), 2, 1) == unsupported
    for name in ("GetVersion", "MatrixLayoutSetAttribute", "MatmulDescGetAttribute", "MatrixTransform"):
        assert getattr(blas, f"hipblasLt{name}")(None, None, None) == unsupported
    for destroy, each in (("", handle), ("MatmulPreference", preference), ("MatmulDesc", product),
                          ("MatrixLayout", square), ("MatrixLayout", eight)):  # fmt: skip
        assert getattr(blas, f"hipblasLt{destroy}Destroy")(each) == success
        assert getattr(blas, f"hipblasLt{destroy}Destroy")(each) == wrong
    assert multiply() == wrong


if __name__ == "__main__":
    for check in (
        events,
        streams,
        copies_of_rectangles,
        managed_memory,
        pools,
        peers,
        wrong_addresses,
        matrix_products,
    ):
        print(check.__name__, flush=True)
        check()
    print("passed")
