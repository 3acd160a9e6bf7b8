"""tensor_from_ptr and CUDAArrayInterface: a tensor on existing memory at an address, for every element type.

The memory is a part of the rank's heap that holds bytes of every value, so that the same bytes are different numbers in
another type.
"""

import torch

from conformance.rma.words import read_address
from conformance.support.cases import HostCase
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement

DTYPES = (
    "float32", "bfloat16", "float16", "int32", "int8", "uint8", "int64", "float64", "int16", "bool", "complex64",
    "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex128",
)  # fmt: skip
ROOM = 16384


def run(env, case):
    name, shape, start = case.arguments
    shape = tuple(shape)
    findings, dtype, wrap = Findings(env.rank), getattr(torch, name), env.under_test.module.tensor_from_ptr
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
    got = wrap(address_of(piece), size, dtype, env.iris.device, shape)
    findings.equal("dtype", got.dtype, dtype)
    findings.equal("shape", tuple(got.shape), shape)
    findings.equal("device", got.device, piece.device)
    findings.true("contiguous", got.is_contiguous())
    if size:
        findings.equal("address", address_of(got), address_of(piece))
        findings.same("bits", got.flatten().view(torch.uint8).cpu(), piece.cpu())
        findings.same("values", got.flatten().view(torch.uint8), piece.view(dtype).view(torch.uint8))
        ones = torch.ones(count).to(dtype)
        got.copy_(ones.view(shape))
        findings.same("memory after writing through the tensor", piece.cpu(), ones.view(torch.uint8))
        if size >= 4 and start % 4 == 0:
            word = int(piece[:4].cpu().view(torch.int32)[0])
            findings.equal("the first word, read by a kernel", read_address(env, address_of(got)), word)
    flat = wrap(address_of(memory), ROOM, dtype, env.iris.device)
    findings.equal("default shape", tuple(flat.shape), (ROOM // dtype.itemsize,))
    for label, ptr in (("at the memory", address_of(memory)), ("at the null pointer", 0)):
        none = wrap(ptr, 0, dtype, env.iris.device, (0, 3))
        findings.equal(f"shape of no elements {label}", tuple(none.shape), (0, 3))
    _refusals(findings, wrap, address_of(memory), dtype, env.iris.device)
    env.settle()
    return findings.first


def _refusals(findings, wrap, ptr, dtype, device):
    size = dtype.itemsize
    if size > 1:
        findings.raises("half an element", ValueError, lambda: wrap(ptr, 5 * size + 1, dtype, device))
        findings.raises("a pointer between elements", ValueError, lambda: wrap(ptr + size // 2, size, dtype, device))
    findings.raises("a null pointer", ValueError, lambda: wrap(0, size, dtype, device))
    findings.raises("a negative size", ValueError, lambda: wrap(ptr, -size, dtype, device))
    findings.raises("a shape of another size", ValueError, lambda: wrap(ptr, 6 * size, dtype, device, (5,)))
    findings.raises("a dtype of quantised numbers", ValueError, lambda: wrap(ptr, 4, torch.qint8, device))
    findings.raises("memory of another kind of device", ValueError, lambda: wrap(ptr, size, dtype, "meta"))


def cases(ranks):
    from hypothesis import strategies as st

    shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple) | st.tuples(st.integers(1, 900))
    return st.builds(
        HostCase,
        what=st.just("raw_pointer"),
        arguments=st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 100)),
    )


@requirement("HOST-RAW-POINTER-001", one_process="", cases=cases, weight=0.5)
def test_raw_pointer(check, case):
    check(run, case)


def attribute(env, owner, name):
    return getattr(owner, name)


def run_interface(env, case):
    """Check the array interface of every dtype. A dtype that the interface has no code for,
    such as bfloat16, must appear as an integer type of its width."""
    findings = Findings(env.rank)
    memory = env.image.arena[:256]
    values = torch.tensor([1.0, -2.5, 3e38, 1e-30], dtype=torch.bfloat16)
    memory[:8].copy_(values.view(torch.uint8))
    for name in DTYPES:
        dtype = getattr(torch, name)
        made = env.under_test.module.CUDAArrayInterface(
            address_of(memory), 16 * dtype.itemsize, dtype, env.iris.device, (4, 4)
        )
        kind = "__cuda_array_interface__" if env.device.torch_device.type == "cuda" else "__array_interface__"
        interface = env.in_library(attribute, made, kind)
        findings.equal(f"shape of {name}", tuple(interface["shape"]), (4, 4))
        findings.equal(f"address of {name}", interface["data"][0], address_of(memory))
        findings.equal(f"width of {name}", int(interface["typestr"][2:]), dtype.itemsize)
        number = "f" if name in {"float16", "float32", "float64"} else "c" if name.startswith("complex") else "iub"
        findings.true(f"kind of {name}: {interface['typestr']}", interface["typestr"][1] in number)
    findings.raises(
        "a quantised dtype",
        ValueError,
        lambda: env.under_test.module.CUDAArrayInterface(address_of(memory), 4, torch.qint8, env.iris.device),
    )
    got = env.under_test.module.tensor_from_ptr(address_of(memory), 8, torch.bfloat16, env.iris.device)
    findings.same("bfloat16 numbers", got.cpu().float(), values.float())
    env.settle()
    return findings.first


@requirement("HOST-RAW-POINTER-002", one_process="", cases=lambda ranks: [HostCase("interface")])
def test_interface(check, case):
    check(run_interface, case)
