"""A plain Triton program on the emulated device: row-wise softmax, without Iris.

    python examples/softmax.py                  # gfx942
    python examples/softmax.py --arch gfx950

The kernel is an ordinary Triton kernel, on CPU tensors. The two lines marked below activate the emulated device;
gpu_softmax.py is the same for a GPU, and iris-harness emulate runs it as it is. Prints counts of executed instructions;
exits with status 1 if the result differs from torch's.
"""

import argparse

import torch
import triton
import triton.language as tl

from harness import emulator  # 1: the emulated device


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """Row r of y is the softmax of row r of x.

    Example: the row [0, ln 3] becomes [0.25, 0.75].
    """
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * columns + offsets, powers / tl.sum(powers, axis=0), mask=inside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument(
        "--arch", choices=emulator.ARCHS, default="gfx942", help="the GPU to compile for and to emulate"
    )
    arch = parser.parse_args().arch

    driver = emulator.activate(arch)  # 2: in place of a GPU's driver
    x = torch.randn(64, 300, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))

    worst = (y - torch.softmax(x, dim=1)).abs().max().item()
    (launch,) = driver.drain_launches()
    for access in launch.accesses:
        print(f"{access.mnemonic:24} {access.width:3} bytes a lane  {access.bytes:8} bytes  {access.source}")
    print(f"{sum(launch.instructions.values())} wavefront-instructions on {arch}, largest difference {worst:.1e}")
    return 0 if worst < 1e-6 else 1


if __name__ == "__main__":
    raise SystemExit(main())
