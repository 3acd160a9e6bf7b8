"""Measure what an operator on an emulated GPU costs, next to the same operator on the CPU, in the same process.

python -m benchmarks.emulated_machine_torch
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from harness.emulated_machine import torch_cuda

CALLS, BATCHES = 2000, 9


def microseconds(function: Callable[[], object]) -> float:
    """Return the median over batches of the time of one call."""
    batches = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        batches.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(batches)


def operators(device: str) -> dict[str, Callable[[], object]]:
    """Return the measured operators on small tensors, so that the call's own cost dominates."""
    x, y = torch.ones(16, 16, device=device), torch.ones(16, 16, device=device)
    w = torch.ones(16, 16, device=device, requires_grad=True)
    return {
        "empty": lambda: torch.empty(16, device=device),
        "view": partial(x.view, -1),
        "x[0]": lambda: x[0],
        "x + y": lambda: x + y,
        "x.add_(y)": partial(x.add_, y),
        "x @ y": lambda: x @ y,
        "x.sum()": x.sum,
        "copy_": partial(x.copy_, y),
        "item": x[0, 0].item,
        "(w * x).sum().backward()": lambda: (w * x).sum().backward(),
    }


def main() -> None:
    """Print a table in Markdown."""
    torch_cuda.install("gfx942", 8)
    torch.set_num_threads(1)
    cpu, gpu = operators("cpu"), operators("cuda")
    print("| operator | CPU, us | emulated GPU, us | difference, us |\n| --- | ---: | ---: | ---: |")
    for name in cpu:
        before, after = microseconds(cpu[name]), microseconds(gpu[name])
        print(f"| {name} | {before:.2f} | {after:.2f} | {after - before:.2f} |")


if __name__ == "__main__":
    main()
