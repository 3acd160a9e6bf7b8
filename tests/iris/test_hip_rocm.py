"""``iris_under_test.hip`` on ROCm: the real hip-python, on a library of ours in the place of AMD's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.emulated_machine.smi.scripted import compiler
from tests.telemetry.standin import ROOT, needs_compiler

pytestmark = needs_compiler
SOURCE = Path(__file__).with_name("standin_hip.c")

PREPARE = """
import ctypes, os, torch
torch.version.hip = VERSION
torch.cuda.device_count, torch.cuda.current_device = lambda: 2, lambda: 0
properties = type("Properties", (), {"gcnArchName": "gfx942:sramecc+:xnack-", "multi_processor_count": 304})
torch.cuda.get_device_properties = lambda device: properties
from iris_under_test import hip
from iris_under_test.host.platform.rocm.runtime import RocmRuntime
hip._runtime = RocmRuntime

def read(ptr, size=8):
    return ctypes.string_at(ptr, size)

def write(ptr, text):
    ctypes.memmove(ptr, text, len(text))

def fails(call, *words):
    try:
        call()
    except RuntimeError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no error: {words}")

def descriptors():
    return len(os.listdir("/proc/self/fd"))
"""

DEVICE = """
assert hip.get_rocm_version() in {(7, 1), (6, 4)}
assert (hip.get_arch_string(1), hip.get_cu_count(), hip.count_devices()) == ("gfx942", 304, 2)
assert hip.get_wall_clock_rate(1) == 100_000
from harness import emulator
emulator.activate("gfx942")
# ROCm has the attribute since 7.0; before, it is the active target's.
assert [hip.get_num_xcc(0), hip.get_num_xcc(1)] == ([8, 6] if hip.get_rocm_version() >= (7, 0) else [8, 8])
"""


MEMORY = """
from hip import hip as binding
binding.hipGetDeviceCount()  # the library is open
before = descriptors()
for allocate in (hip.hip_malloc, hip.malloc_fine_grained):
    ptr = allocate(8192)
    assert hip.get_address_range(ptr + 5000) == (ptr, 8192)
    write(ptr + 4096, b"8 bytes.")
    fd, base, size = hip.export_dmabuf_handle(ptr + 4096, 4096)
    assert (base, size) == (ptr, 8192)
    memory, again = hip.import_dmabuf_handle(fd, size)
    os.close(fd)
    assert again != ptr and read(again + 4096) == b"8 bytes."
    handle = hip.get_ipc_handle(ptr)
    opened = hip.open_ipc_handle(handle)
    assert len(handle) == 64 and read(opened + 4096) == b"8 bytes."
    hip.close_ipc_handle(opened)
    hip.destroy_external_memory(memory)
    hip.hip_free(ptr)
    fails(lambda: hip.hip_free(ptr), "hipFree", "hipErrorInvalidValue")
    fails(lambda: hip.get_address_range(ptr), "hipMemGetAddressRange", "hipErrorInvalidValue")
    fails(lambda: hip.export_dmabuf_handle(ptr, 1), "hipMemGetHandleForAddressRange")
file = os.memfd_create("small")
fails(lambda: hip.import_dmabuf_handle(file, 4096), "hipImportExternalMemory")
os.close(file)
assert descriptors() == before
"""


VIRTUAL_MEMORY = """
from hip import hip as binding
binding.hipGetDeviceCount()
before, grain = descriptors(), hip.get_allocation_granularity()
assert grain == 65536
start = hip.mem_address_reserve(4 * grain)
handle = hip.mem_create(grain, device_id=1)
hip.mem_map(start, grain, 0, handle)
hip.mem_set_access(start, grain, hip.hipMemAccessDesc.read_write(1))
write(start, b"mapped..")
fd = hip.mem_export_to_shareable_handle(handle)
again = hip.mem_import_from_shareable_handle(fd)
os.close(fd)
hip.mem_map(start + 2 * grain, grain, 0, again)
hip.mem_set_access(start + 2 * grain, grain)
assert read(start + 2 * grain) == b"mapped.."
fails(lambda: hip.mem_map(start, grain, 0, handle), "hipMemMap")
fails(lambda: hip.mem_create(1), "hipMemCreate")
for each in (handle, again):
    hip.mem_release(each)
hip.mem_unmap(start, grain)
hip.mem_unmap(start + 2 * grain, grain)
fails(lambda: hip.mem_unmap(start, grain), "hipMemUnmap")
hip.mem_address_free(start, 4 * grain)
assert descriptors() == before
"""


@pytest.fixture(params=["since 7.1", pytest.param("before 7.1", marks=pytest.mark.nightly)])
def run(request, tmp_path):
    new = request.param == "since 7.1"
    target = tmp_path / "libamdhip64.so"
    flags = () if new else ("-DFDS_BY_POINTER",)
    command = [compiler(), "-shared", "-fPIC", "-O1", "-Wall", *flags, "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)

    def run(code: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PREPARE.replace("VERSION", repr("7.1.25424" if new else "6.4.43482")) + code],
            env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.slow
def test_everything_through_the_binding(run):
    """In one process per version of ROCm: a start of torch and Triton takes longer than all the calls."""
    run(DEVICE + MEMORY + VIRTUAL_MEMORY)
