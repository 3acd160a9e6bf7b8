"""A PyTorch and Triton program for one GPU: row-wise softmax. It names nothing of this project.

    python examples/gpu_softmax.py                            # on a GPU
    iris-harness emulate -- python examples/gpu_softmax.py    # without one

Prints the device and the largest difference from torch's softmax; exits with status 1 if they differ.
"""

import torch
import triton
import triton.language as tl


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
    torch.manual_seed(0)
    x = torch.randn(64, 300, device="cuda")
    y = torch.empty_like(x)
    softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    worst = (y - torch.softmax(x, dim=1)).abs().max().item()
    print(f"{torch.cuda.get_device_name()}, {y.device}: largest difference {worst:.1e}")
    return 0 if worst < 1e-6 else 1


if __name__ == "__main__":
    raise SystemExit(main())
