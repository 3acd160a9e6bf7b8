"""Compare the results of kernels on two machines, bit by bit: one records digests in a file, the other checks them.

    python -m tests.gpu.compare --write recorded.json        # on a GPU of any vendor
    python -m tests.gpu.compare recorded.json                # on another GPU
    python -m tests.gpu.compare --emulated gfx942            # the emulated device with the recorded GPU

``compare_kernels`` lists which results depend on no device. All NaN count as equal. Prints a line for each kernel that
differs, with the number of blocks of 64 elements, and the counts; the status is 1 if any differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from tests.gpu import compare_kernels as kernels

RECORDED = Path(__file__).with_name("recorded") / "h100.json"
GROUPS, N, BLOCK = 4, 256, 64
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint32)
_FLOATS = (torch.float32, torch.float16, torch.float64)
# A sum of bfloat16 may be rounded twice. The minimum of a number and a signalling NaN is either, by the device.
_OF_BFLOAT16 = ("mul", "less", "equal", "abs")
# (from, to): conversions to nearest even, of numbers in the range of the result.
_CONVERSIONS = [
    (torch.float32, torch.float16), (torch.float32, torch.bfloat16), (torch.float32, torch.float64),
    (torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float32),
    (torch.float32, torch.int32), (torch.float32, torch.int64), (torch.float16, torch.int16),
    (torch.int32, torch.float32), (torch.int64, torch.float32), (torch.int64, torch.float64),
    (torch.uint32, torch.float32), (torch.int8, torch.float16), (torch.int16, torch.int64),
    (torch.int64, torch.int16), (torch.float8_e5m2, torch.float16), (torch.float8_e5m2, torch.float32),
]  # fmt: skip
_PRODUCTS = [
    (torch.float16, tl.float32, 16), (torch.bfloat16, tl.float32, 16), (torch.float32, tl.float32, 16),
    (torch.int8, tl.int32, 32), (torch.float16, tl.float32, 64),
]  # fmt: skip


def words(seed: int, count: int = GROUPS * N) -> np.ndarray:
    """Return uint64[count]: edges of all integer and float types, then random words."""
    draw = np.random.default_rng(seed)
    edges = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 63) - 1,
             (1 << 64) - 1]  # fmt: skip
    out = draw.integers(0, 1 << 64, count, np.uint64)
    out[: count // 4] = draw.choice(np.array(edges, np.uint64), count // 4)
    return out


def numbers(seed: int, dtype: torch.dtype, count: int = GROUPS * N) -> torch.Tensor:
    """Return floats: edges, denormal numbers, numbers of similar size, and any bits."""
    bits = torch.finfo(dtype).bits
    kind = np.dtype(f"u{bits // 8}")
    value = words(seed, count).astype(kind)
    draw = np.random.default_rng(seed + 1)
    near = (draw.standard_normal(count // 4) * 8).astype(
        {64: np.float64, 32: np.float32, 16: np.float16, 8: np.float16}[bits]
    )
    quarter = count // 4
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("inf"), float("-inf"), 3.0, 1e-3]).to(dtype)
    picked = edges[torch.from_numpy(draw.integers(0, len(edges), quarter))]
    out = torch.from_numpy(value.view(f"i{bits // 8}").copy()).view(dtype)
    out[:quarter] = picked
    out[quarter : 2 * quarter] = torch.from_numpy(near).to(dtype)
    return out


def integers(seed: int, dtype: torch.dtype, count: int = GROUPS * N) -> torch.Tensor:
    size = torch.iinfo(dtype).bits // 8
    letter = "u" if dtype in (torch.uint8, torch.uint32) else "i"
    return torch.from_numpy(words(seed, count).astype(f"u{size}").view(f"{letter}{size}"))


def results(device: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the result of each kernel on ``device``."""

    def name(dtype: Any) -> str:
        return str(dtype).rpartition(".")[2]

    def put(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device)

    for dtype in _INTEGERS:
        x, y = put(integers(1, dtype)), put(integers(2, dtype))
        for op in kernels.INTEGERS:
            out = torch.zeros_like(x)
            kernels.integers[(GROUPS,)](x, y, out, op, N, num_warps=4)
            yield f"integers {name(dtype)} {op}", out
    x, y = put(integers(1, torch.uint32)), put(integers(2, torch.uint32))
    out = torch.zeros_like(x)
    kernels.high_products[(GROUPS,)](x, y, out, N, num_warps=4)
    yield "high_products uint32", out

    for dtype in (*_FLOATS, torch.bfloat16):
        x, y, z = (put(numbers(seed, dtype)) for seed in (3, 4, 5))
        names = kernels.FLOATS + (kernels.ROUNDED if dtype == torch.float32 else ())
        for op in _OF_BFLOAT16 if dtype == torch.bfloat16 else names:
            out = torch.zeros_like(x)
            kernels.floats[(GROUPS,)](x, y, z, out, op, N, num_warps=4)
            yield f"floats {name(dtype)} {op}", out

    for source, target in _CONVERSIONS:
        floating = source.is_floating_point
        x = numbers(6, source) if floating else integers(6, source)
        if floating and not target.is_floating_point:
            limit = 2.0 ** min(torch.iinfo(target).bits - 2, 14 if source == torch.float16 else 60)
            x = torch.nan_to_num(x.double(), 0.0, limit, -limit).clamp(-limit, limit).to(source)
        if source == torch.float64:
            # Only NaN and numbers that float32 can hold or rounds to infinity: both devices round once.
            x = torch.where(x.abs() < 1e300, x, torch.full_like(x, 1.0 / 3))
        out = torch.zeros(len(x), dtype=target, device=device)
        kernels.converted[(GROUPS,)](put(x), out, N, num_warps=4)
        yield f"converted {name(source)} {name(target)}", out
    x, out = put(numbers(7, torch.float32)), torch.zeros(GROUPS * N, dtype=torch.float16, device=device)
    kernels.truncated[(GROUPS,)](x, out, N, num_warps=4)
    yield "truncated float32 float16", out

    for dtype in (torch.int32, torch.int64):
        x = put(integers(8, dtype))
        for op in kernels.REDUCTIONS:
            out = torch.zeros(GROUPS, dtype=torch.int32 if op.startswith("arg") else dtype, device=device)
            kernels.reduced[(GROUPS,)](x, out, op, N, num_warps=4)
            yield f"reduced {name(dtype)} {op}", out
        for op in kernels.SCANS:
            out = torch.zeros_like(x)
            kernels.scanned[(GROUPS,)](x, out, op, N, num_warps=4)
            yield f"scanned {name(dtype)} {op}", out

    x = put(integers(9, torch.int32))
    for op in kernels.ATOMICS:
        start = {"and": -1, "min": 0x7FFFFFFF}.get(op, 0)
        out = torch.full((N,), start, dtype=torch.int32, device=device)
        kernels.counted[(GROUPS,)](x, out, op, N, N, num_warps=4)
        yield f"counted int32 {op}", out
    for dtype in (torch.float32, torch.float16, torch.float64):
        out = torch.zeros(16, dtype=dtype, device=device)
        kernels.added[(GROUPS,)](x, out, 16, N, num_warps=4)
        yield f"added {name(dtype)}", out
    for op in kernels.SHAPES:
        out = torch.zeros_like(x)
        kernels.shaped[(GROUPS,)](x, out, op, N, num_warps=4)
        yield f"shaped {op}", out

    draw = np.random.default_rng(10)
    for dtype, accumulator, k in _PRODUCTS:
        small = [torch.from_numpy(draw.integers(-8, 8, shape)).to(dtype) for shape in ((32, k), (k, 32))]
        out = torch.zeros(32, 32, dtype=torch.int32 if dtype == torch.int8 else torch.float32, device=device)
        kernels.product[(1,)](put(small[0]), put(small[1]), out, 32, 32, k, accumulator, num_warps=4)
        yield f"product {name(dtype)} {k}", out
    out = torch.zeros_like(x)
    kernels.steps[(GROUPS,)](x, out, N, num_warps=4)
    yield "steps", out
    kernels.drawn[(GROUPS,)](out, 1234, N, num_warps=4)
    yield "drawn", out.clone()


def digests(result: torch.Tensor) -> list[str]:
    """Return a digest for each 64 elements; all NaN have the same bits."""
    flat = result.reshape(-1).cpu()
    if flat.is_floating_point():
        flat = torch.where(flat.isnan(), torch.full_like(flat, float("nan")), flat)
    raw = flat.contiguous().view(torch.uint8).numpy().reshape(-1)
    step = BLOCK * flat.element_size()
    return [
        hashlib.blake2b(raw[at : at + step].tobytes(), digest_size=6).hexdigest() for at in range(0, len(raw), step)
    ]


def record(device: str, label: str) -> dict[str, Any]:
    """Return what a file has: the device, the versions, and the digests of each kernel's result."""
    versions = {"torch": torch.__version__.partition("+")[0], "triton": triton.__version__}
    return {"device": label, **versions, "kernels": {name: digests(result) for name, result in results(device)}}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return a line for each kernel that differs between two records, or that one of them lacks."""
    lines = []
    for name in sorted({*one["kernels"], *other["kernels"]}):
        mine, theirs = one["kernels"].get(name), other["kernels"].get(name)
        if mine is None or theirs is None:
            lines.append(f"{name}: not in the record of {(one if mine is None else other)['device']}")
        elif mine != theirs:
            count = sum(a != b for a, b in zip(mine, theirs, strict=False)) + abs(len(mine) - len(theirs))
            lines.append(f"{name}: {count} of {len(theirs)} blocks differ")
    return lines


def emulated(arch: str) -> dict[str, Any]:
    """Return the record of the emulated device."""
    from harness import emulator

    emulator.activate(arch)
    try:
        return record("cpu", f"emulated {arch}")
    finally:
        emulator.deactivate()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the results of kernels with those of a recorded GPU.")
    parser.add_argument("file", nargs="?", type=Path, default=RECORDED, help="the record to compare with")
    parser.add_argument("--write", action="store_true", help="write the file instead")
    parser.add_argument("--emulated", metavar="ARCH", choices=("gfx942", "gfx950"), help="use the emulated device")
    options = parser.parse_args(arguments)
    mine = emulated(options.emulated) if options.emulated else record("cuda", torch.cuda.get_device_name())
    if options.write:
        options.file.write_text(json.dumps(mine, indent=0) + "\n")
        print(f"{options.file}: {len(mine['kernels'])} kernels on {mine['device']}")
        return 0
    recorded = json.loads(options.file.read_text())
    lines = differences(mine, recorded)
    for line in lines:
        print(line)
    total = len({*mine["kernels"], *recorded["kernels"]})
    print(f"{mine['device']} and {recorded['device']}: {total} kernels, {total - len(lines)} equal bit for bit")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
