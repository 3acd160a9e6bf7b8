"""tensor_from_ptr and CUDAArrayInterface: a tensor over memory at an address, with the bits of every element type.

The memory is a piece of the rank's heap that holds bytes of every value, so that the same bytes seen as another type
are other numbers.
"""

import torch

from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

DTYPES = (
    "float32", "bfloat16", "float16", "int32", "int8", "uint8", "int64", "float64", "int16", "bool", "complex64",
    "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex128",
)  # fmt: skip
ROOM = 16384


def run(env, case):
    name, shape, start = case.arguments
    shape = tuple(shape)
    found, dtype, wrap = Findings(env.rank), getattr(torch, name), env.under_test.module.tensor_from_ptr
    env.image.reset()
    memory = env.image.arena[:ROOM]
    memory.copy_(torch.arange(ROOM).mul(2 if name == "bool" else 7).add(env.rank).to(torch.uint8))
    if name == "bool":
        memory.remainder_(2)
    count = 1
    for extent in shape:
        count *= extent
    size = count * dtype.itemsize
    start *= dtype.itemsize
    piece = memory[start : start + size]
    got = wrap(piece.data_ptr(), size, dtype, env.iris.device, shape)
    found.equal("dtype", got.dtype, dtype)
    found.equal("shape", tuple(got.shape), shape)
    found.equal("device", got.device, piece.device)
    found.true("contiguous", got.is_contiguous())
    if size:
        found.equal("address", got.data_ptr(), piece.data_ptr())
        found.same("bits", got.flatten().view(torch.uint8).cpu(), piece.cpu())
        found.same("values", got.flatten().view(torch.uint8), piece.view(dtype).view(torch.uint8))
        ones = torch.ones(count).to(dtype)
        got.copy_(ones.view(shape))
        found.same("what was written through it", piece.cpu(), ones.view(torch.uint8))
        if size >= 4 and start % 4 == 0:
            word = int(piece[:4].cpu().view(torch.int32)[0])
            found.equal("the first word as a kernel reads it", read_address(env, got.data_ptr()), word)
    flat = wrap(memory.data_ptr(), ROOM, dtype, env.iris.device)
    found.equal("shape that was not given", tuple(flat.shape), (ROOM // dtype.itemsize,))
    _refusals(found, wrap, memory.data_ptr(), dtype, env.iris.device)
    env.settle()
    return found.first


def _refusals(found, wrap, ptr, dtype, device):
    size = dtype.itemsize
    if size > 1:
        found.raises("half an element", ValueError, lambda: wrap(ptr, 5 * size + 1, dtype, device))
        found.raises("a pointer between elements", ValueError, lambda: wrap(ptr + size // 2, size, dtype, device))
    found.raises("a null pointer", ValueError, lambda: wrap(0, size, dtype, device))
    found.raises("a negative size", ValueError, lambda: wrap(ptr, -size, dtype, device))
    found.raises("a shape of another size", ValueError, lambda: wrap(ptr, 6 * size, dtype, device, (5,)))
    found.raises("a dtype of quantised numbers", ValueError, lambda: wrap(ptr, 4, torch.qint8, device))
    found.raises("memory of another kind of device", ValueError, lambda: wrap(ptr, size, dtype, "meta"))


def cases(ranks):
    from hypothesis import strategies as st

    shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple) | st.tuples(st.integers(1, 900))
    return st.builds(
        HostCase,
        what=st.just("raw_pointer"),
        arguments=st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 100)),
    )


@requirement("HOST-RAW-POINTER-001", cases=cases, weight=0.5)
def test_raw_pointer(check, case):
    check(run, case)


def run_interface(env, case):
    """What the interface says of bfloat16: its own bits, as a type of the same width that is no other float."""
    found = Findings(env.rank)
    memory = env.image.arena[:256]
    values = torch.tensor([1.0, -2.5, 3e38, 1e-30], dtype=torch.bfloat16)
    memory[:8].copy_(values.view(torch.uint8))
    for name in DTYPES:
        dtype = getattr(torch, name)
        made = env.under_test.module.CUDAArrayInterface(
            memory.data_ptr(), 16 * dtype.itemsize, dtype, env.iris.device, (4, 4)
        )
        kind = "__cuda_array_interface__" if env.device.torch_device.type == "cuda" else "__array_interface__"
        interface = getattr(made, kind)
        found.equal(f"shape of {name}", tuple(interface["shape"]), (4, 4))
        found.equal(f"address of {name}", interface["data"][0], memory.data_ptr())
        found.equal(f"width of {name}", int(interface["typestr"][2:]), dtype.itemsize)
        number = "f" if name in {"float16", "float32", "float64"} else "c" if name.startswith("complex") else "iub"
        found.true(f"kind of {name}: {interface['typestr']}", interface["typestr"][1] in number)
    found.raises(
        "a quantised dtype",
        ValueError,
        lambda: env.under_test.module.CUDAArrayInterface(memory.data_ptr(), 4, torch.qint8, env.iris.device),
    )
    got = env.under_test.module.tensor_from_ptr(memory.data_ptr(), 8, torch.bfloat16, env.iris.device)
    found.same("bfloat16 numbers", got.cpu().float(), values.float())
    env.settle()
    return found.first


@requirement("HOST-RAW-POINTER-002", cases=lambda ranks: [HostCase("interface")])
def test_interface(check, case):
    check(run_interface, case)
