"""Tensors over raw pointers, on the emulated device; on GPUs: conformance/distributed."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from harness import emulator
from iris_under_test import CUDAArrayInterface, tensor_from_ptr

DTYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _emulated():
    emulator.activate("gfx942")
    yield
    emulator.deactivate()


@pytest.fixture
def memory():
    """1024 bytes that are all different values or nearly so, aligned to 1024."""
    whole = torch.arange(2048, dtype=torch.int64).to(torch.uint8)
    start = -whole.data_ptr() % 1024
    return whole[start : start + 1024]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bits_are_those_of_the_memory(memory, dtype):
    memory[:32] %= 2  # also for bool
    tensor = tensor_from_ptr(memory.data_ptr(), 32, dtype)
    assert (tensor.dtype, tensor.shape, tensor.data_ptr()) == (dtype, (32 // dtype.itemsize,), memory.data_ptr())
    assert tensor.view(torch.uint8).tolist() == memory[:32].tolist()
    memory[0] = 0
    tensor.view(torch.uint8)[31] = 1
    assert tensor.view(torch.uint8)[0] == 0, "no copy"
    assert memory[31] == 1, "no copy"


def test_bfloat16_is_no_float16(memory):
    memory.view(torch.bfloat16)[:3] = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    tensor = tensor_from_ptr(memory.data_ptr(), 6, torch.bfloat16)
    assert tensor.tolist() == torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16).tolist()
    bits = np.asarray(CUDAArrayInterface(memory.data_ptr(), 6, torch.bfloat16))
    assert (bits.dtype, bits[0]) == (np.int16, 0x3F80)


def test_shapes(memory):
    assert tensor_from_ptr(memory.data_ptr(), 1024).shape == (256,)
    tensor = tensor_from_ptr(memory.data_ptr(), 96, torch.int32, shape=(2, 3, 4))
    assert (tensor.shape, tensor.stride()) == ((2, 3, 4), (12, 4, 1))
    assert tensor_from_ptr(memory.data_ptr(), 4, torch.int32, shape=()).shape == ()
    for shape in ((0,), (3, 0)):
        assert tensor_from_ptr(memory.data_ptr(), 0, torch.int32, shape=shape).shape == shape


def test_the_interface(memory):
    interface = CUDAArrayInterface(memory.data_ptr(), 64, torch.float32, shape=(4, 4))
    assert (interface.ptr, interface.size_bytes, interface.shape) == (memory.data_ptr(), 64, (4, 4))
    array = np.asarray(interface)
    assert (array.dtype, array.shape) == (np.float32, (4, 4))
    array[0, 0] = 5
    assert memory.view(torch.float32)[0] == 5
    assert CUDAArrayInterface(memory.data_ptr(), 7).dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"size_bytes": 63}, "63 bytes"),
        ({"size_bytes": -4}, "-4 bytes"),
        ({"ptr": 0}, "0x0"),
        ({"ptr": -4}, "-0x4"),
        ({"ptr": 4098}, "0x1002"),
        ({"shape": (5,)}, r"\(5,\)"),
        ({"shape": (-4, -4)}, r"\(-4, -4\)"),
        ({"dtype": torch.qint8}, "qint8"),
        ({"device": "cuda:1"}, "cuda:1"),
        ({"device": "meta"}, "device meta"),
    ],
)
@pytest.mark.parametrize("make", [tensor_from_ptr, CUDAArrayInterface])
def test_what_cannot_be_wrapped(memory, make, change, match):
    with pytest.raises(ValueError, match=match):
        make(**{"ptr": memory.data_ptr(), "size_bytes": 64, "dtype": torch.float32, **change})


def test_the_memory_is_its_owners(memory):
    tensor = tensor_from_ptr(memory.data_ptr(), 64, torch.uint8)
    del tensor
    gc.collect()
    assert memory.sum() > 0
