"""Memory of HIP in two processes, by the calls of ``harness.devices.shared_memory``; run by ``test_programs``.

Without arguments this process exports memory and starts the one that maps it; with them it is that one.
"""

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
from functools import partial

import pytest

from harness.devices.shared_memory import DriverError, Export, MemoryCalls
from harness.ranks import processes
from tests.emulated_machine.hip.programs import Access, Location, Properties, allocated, hip, size

GRANULE = 2 << 20
by_value = MemoryCalls("libamdhip64.so", "hip", "hipDrvGetErrorName")
by_pointer = dataclasses.replace(by_value, by_value=False)


def virtual(pieces):
    """Return the address of a range of ``pieces`` memories, one after the other."""
    nothing, address = ctypes.c_ulonglong(0), ctypes.c_void_p()
    assert hip.hipMemAddressReserve(ctypes.byref(address), size(pieces * GRANULE), size(0), None, nothing) == 0
    for place in range(address.value, address.value + pieces * GRANULE, GRANULE):
        handle, properties = ctypes.c_void_p(), Properties(type=1, handles=1, location=Location(1, 0))
        assert hip.hipMemCreate(ctypes.byref(handle), size(GRANULE), ctypes.byref(properties), nothing) == 0
        assert hip.hipMemMap(ctypes.c_void_p(place), size(GRANULE), size(0), handle, nothing) == 0
        access = Access(Location(1, 0), 3)
        assert hip.hipMemSetAccess(ctypes.c_void_p(place), size(GRANULE), ctypes.byref(access), size(1)) == 0
    return address.value


def owner():
    plain, ranges = allocated(8192).value, virtual(2)
    ctypes.memset(plain, 1, 8192)
    ctypes.memset(ranges, 2, GRANULE)
    ctypes.memset(ranges + GRANULE, 3, GRANULE)
    whole = by_value.export(plain + 100)
    assert (whole.base, whole.size, whole.descriptor) == (plain, 8192, -1) and len(whole.handle) == 64
    pieces = [by_value.export(ranges + offset) for offset in (5, GRANULE)]
    assert [(one.base - ranges, one.size, one.handle) for one in pieces] == [(0, GRANULE, b""), (GRANULE, GRANULE, b"")]
    assert whole.number == by_value.export(plain).number != pieces[0].number != pieces[1].number
    own = ctypes.create_string_buffer(64)
    assert by_value.export(ctypes.addressof(own)) is None, "memory of the host"
    message = json.dumps(
        [os.getpid(), *([*one.plain()[:3], one.handle.hex(), one.descriptor] for one in (whole, *pieces))]
    )
    subprocess.run([sys.executable, "-m", "tests.emulated_machine.hip.sharing", message], check=True)
    assert ctypes.string_at(plain + 4096, 1) == b"\7" and ctypes.string_at(ranges + GRANULE, 1) == b"\x08"


def mapper(message):
    pid, *sent = json.loads(message)
    whole, *pieces = (Export.of([*fields, bytes.fromhex(handle), number]) for *fields, handle, number in sent)
    mapped = by_value.opened(whole)
    assert mapped.size == 8192 and ctypes.string_at(mapped.address, 8192) == b"\1" * 8192
    ctypes.memset(mapped.address + 4096, 7, 1)
    mapped.close()
    mapped.close()
    refused("hipIpcCloseMemHandle", partial(by_value._call, "IpcCloseMemHandle", mapped.address))
    refused("hipIpcOpenMemHandle", partial(by_value.opened, dataclasses.replace(whole, handle=b"x" * 64)))
    taken = [(processes.descriptor_of(pid, one.descriptor), one.size) for one in pieces]
    for calls in (by_value, by_pointer):
        joined = calls.joined(taken, 0)
        assert joined.size == 2 * GRANULE
        assert ctypes.string_at(joined.address + GRANULE - 1, 2) == (b"\2\3" if calls is by_value else b"\2\x08")
        ctypes.memset(joined.address + GRANULE, 8, 1)
        joined.close()
    refused("hipMemMap", partial(by_value.joined, [(taken[0][0], 2 * GRANULE)], 0))
    refused(
        "hipMemImportFromShareableHandle", partial(by_value.joined, [(os.open("/dev/null", os.O_RDONLY), GRANULE)], 0)
    )
    refused("Bad file descriptor", partial(processes.descriptor_of, pid, 1000), OSError)


def refused(reason, call, kind=DriverError):
    with pytest.raises(kind, match=f"{reason} of libamdhip64.so failed: hipError" if kind is DriverError else reason):
        call()


if __name__ == "__main__":
    mapper(sys.argv[1]) if len(sys.argv) > 1 else owner()
    print("passed")
