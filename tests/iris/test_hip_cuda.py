"""``iris_under_test.hip`` on CUDA, on a stand-in for cuda-bindings. conformance/distributed tests real GPUs."""

from __future__ import annotations

import ctypes
import sys
import types
from enum import IntEnum

import pytest
import torch

from iris_under_test import hip
from iris_under_test.host.platform.cuda.runtime import CudaRuntime

HANDLE = bytes(range(64))


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


class Handle:
    """As cuda-bindings has it: an address and nothing else."""

    def __init__(self, data: bytes = bytes(64)) -> None:
        self.memory = ctypes.create_string_buffer(data, 64)

    def getPtr(self) -> int:  # noqa: N802 - the binding's
        return ctypes.addressof(self.memory)


@pytest.fixture
def calls(monkeypatch):
    """The calls that were made; ``calls.refused`` fails."""
    made = types.SimpleNamespace(names=[], refused="")
    answers = {
        "cuMemAlloc": lambda size: (0x1000 + size,),
        "cuMemFree": lambda ptr: (),
        "cuMemGetAddressRange": lambda ptr: (0x1000, 512),
        "cuIpcGetMemHandle": lambda ptr: (Handle(HANDLE),),
        "cuIpcOpenMemHandle": lambda handle, flags: (
            {(HANDLE, 1): 0x9000}[ctypes.string_at(handle.getPtr(), 64), flags],
        ),
        "cuIpcCloseMemHandle": lambda ptr: (),
    }

    def function(name):
        def call(*arguments):
            assert context == ["current"], "torch's context is this thread's first"
            made.names.append((name, *(argument for argument in arguments if isinstance(argument, int))))
            if name == made.refused:
                return (Result.CUDA_ERROR_INVALID_VALUE, *(None for _ in answers[name](*arguments)))
            return (Result.CUDA_SUCCESS, *answers[name](*arguments))

        return call

    context: list[str] = []
    driver = types.ModuleType("cuda.bindings.driver")
    driver.CUresult, driver.CUipcMemHandle = Result, Handle
    for name in answers:
        setattr(driver, name, function(name))
    package = types.ModuleType("cuda.bindings")
    package.driver = driver
    for name, module in {"cuda": types.ModuleType("cuda"), "cuda.bindings": package}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: context.__setitem__(slice(None), ["current"]))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, device))
    monkeypatch.setattr(hip, "_runtime", CudaRuntime)
    return made


def test_what_the_device_is(calls):
    assert (hip.get_device_id(), hip.count_devices(), hip.get_num_xcc()) == (1, 2, 1)
    assert (hip.get_arch_string(), hip.get_arch_string(0), hip.get_wall_clock_rate()) == ("sm_91", "sm_90", 1_000_000)
    assert calls.names == []


def test_memory(calls):
    ptr = hip.hip_malloc(64)
    assert hip.malloc_fine_grained(65) == 0x1041
    assert hip.get_address_range(ptr + 3) == (0x1000, 512)
    assert hip.get_ipc_handle(ptr) == HANDLE
    assert hip.open_ipc_handle(HANDLE) == 0x9000
    hip.close_ipc_handle(0x9000)
    hip.hip_free(ptr)
    assert calls.names == [
        ("cuMemAlloc", 64), ("cuMemAlloc", 65), ("cuMemGetAddressRange", 0x1043), ("cuIpcGetMemHandle", 0x1040),
        ("cuIpcOpenMemHandle", 1), ("cuIpcCloseMemHandle", 0x9000), ("cuMemFree", 0x1040),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "call"),
    [
        ("cuMemAlloc", lambda: hip.hip_malloc(1)),
        ("cuMemFree", lambda: hip.hip_free(1)),
        ("cuMemGetAddressRange", lambda: hip.get_address_range(1)),
        ("cuIpcGetMemHandle", lambda: hip.get_ipc_handle(1)),
        ("cuIpcOpenMemHandle", lambda: hip.open_ipc_handle(HANDLE)),
        ("cuIpcCloseMemHandle", lambda: hip.close_ipc_handle(1)),
    ],
)
def test_refusals(calls, refused, call):
    calls.refused = refused
    with pytest.raises(RuntimeError, match=f"{refused}: CUDA_ERROR_INVALID_VALUE"):
        call()
