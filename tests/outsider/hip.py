"""The part of HIP that the library uses, by ctypes, as an author outside of this project would write it."""

import ctypes

_hip = ctypes.CDLL("libamdhip64.so")
_hip.hipGetErrorString.restype = ctypes.c_char_p


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


_hip.hipMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
_hip.hipFree.argtypes = [ctypes.c_void_p]
_hip.hipMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_hip.hipIpcGetMemHandle.argtypes = [ctypes.POINTER(IpcHandle), ctypes.c_void_p]
_hip.hipIpcOpenMemHandle.argtypes = [ctypes.POINTER(ctypes.c_void_p), IpcHandle, ctypes.c_uint]
_hip.hipIpcCloseMemHandle.argtypes = [ctypes.c_void_p]

_LAZY_ENABLE_PEER_ACCESS = 1


class HipError(RuntimeError):
    """A call of HIP that failed."""


def _check(status: int, call: str) -> None:
    if status != 0:
        raise HipError(f"{call}: {_hip.hipGetErrorString(status).decode()} ({status})")


def set_device(device: int) -> None:
    _check(_hip.hipSetDevice(device), "hipSetDevice")


def malloc(nbytes: int) -> int:
    """Return the address of ``nbytes`` zeroed bytes of the current GPU."""
    pointer = ctypes.c_void_p()
    _check(_hip.hipMalloc(ctypes.byref(pointer), nbytes), f"hipMalloc({nbytes})")
    assert pointer.value is not None
    _check(_hip.hipMemset(pointer, 0, nbytes), "hipMemset")
    synchronize()
    return pointer.value


def free(address: int) -> None:
    _check(_hip.hipFree(address), "hipFree")


def export(address: int) -> bytes:
    """Return the IPC handle of an allocation."""
    handle = IpcHandle()
    _check(_hip.hipIpcGetMemHandle(ctypes.byref(handle), address), "hipIpcGetMemHandle")
    return bytes(handle)


def open_peer(exported: bytes) -> int:
    """Return the address at which this process reaches another process's allocation."""
    pointer = ctypes.c_void_p()
    handle = IpcHandle.from_buffer_copy(exported)
    _check(_hip.hipIpcOpenMemHandle(ctypes.byref(pointer), handle, _LAZY_ENABLE_PEER_ACCESS), "hipIpcOpenMemHandle")
    assert pointer.value is not None
    return pointer.value


def close_peer(address: int) -> None:
    _check(_hip.hipIpcCloseMemHandle(address), "hipIpcCloseMemHandle")


def synchronize() -> None:
    _check(_hip.hipDeviceSynchronize(), "hipDeviceSynchronize")
