"""How fast the emulated device is: throughput of a large masked remote put on one core, and latency of a small one.

    python benchmarks/emulator.py
    python benchmarks/emulator.py --repeat 5 --json

Each figure stands next to what NumPy takes in the same run for the array operations that the emulator cannot do
without: one addition of 32-bit numbers a vector instruction on as many lanes, and a copy of the bytes that the kernel
moves. The machine's own speed cancels in the ratios. Times are processor time of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import emulator


@gluon.jit
def masked_put(heap_bases, source, target, n, to_rank, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """target[i] of rank ``to_rank`` = source[i] of rank 0 for i < n; each lane moves SIZE neighbours.

    Example: n 3, SIZE 2: lane 0 stores elements 0 and 1, lane 1 element 2.
    """
    BLOCK: gl.constexpr = 64 * WARPS * SIZE
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SIZE], [64], [WARPS], [0]))
    mask = offsets < n
    # Bases are 16-byte aligned: said through the shift, so that wide accesses stay wide.
    size: gl.constexpr = source.dtype.element_ty.primitive_bitwidth // 8
    steps = ((gl.load(heap_bases + to_rank) - gl.load(heap_bases)) >> 4) * (16 // size)
    gl.store(target + offsets + steps, gl.load(source + offsets, mask=mask), mask=mask)  # remote


class Put:
    """A put of ``n`` elements between two heaps of this process."""

    def __init__(self, driver: emulator.EmulatedDriver, n: int, dtype: torch.dtype, size: int, warps: int) -> None:
        self.driver, self.n, self.size, self.warps = driver, n, size, warps
        self.groups = -(-n // (64 * warps * size))
        words = 2 * n + 64
        self.heaps = [torch.zeros(words, dtype=dtype) for _ in range(2)]
        self.bases = torch.tensor([heap.data_ptr() for heap in self.heaps])
        for rank, heap in enumerate(self.heaps):
            driver.register_memory(heap.data_ptr(), heap.nbytes, f"heap of rank {rank}", peer=rank or None)
        self.source, self.target = self.heaps[0][:n], self.heaps[0][n : 2 * n]
        self.source.copy_(torch.arange(n).to(dtype))

    def launch(self) -> None:
        masked_put[(self.groups,)](
            self.bases, self.source, self.target, self.n, 1, self.size, self.warps, num_warps=self.warps
        )

    def check(self) -> emulator.LaunchRecord:
        """Run once from a clean target; the launch's counters."""
        self.heaps[1].zero_()
        self.driver.drain_launches()
        self.launch()
        assert torch.equal(self.heaps[1][self.n : 2 * self.n], self.source), "the put moved the wrong data"
        return self.driver.drain_launches()[-1]

    def close(self) -> None:
        for heap in self.heaps:
            self.driver.unregister_memory(heap.data_ptr())


def seconds(action: Callable[[], object], repeat: int, at_least: float = 0.2) -> float:
    """Processor seconds of one call, the median over ``repeat`` rounds of about ``at_least`` seconds.

    A launch runs on the calling thread and never sleeps here, so this is the wall-clock time on a core that nobody else
    uses.
    """
    action()
    start = time.process_time()
    action()
    calls = max(1, int(at_least / max(time.process_time() - start, 1e-7)))
    rounds = []
    for _ in range(repeat):
        start = time.process_time()
        for _ in range(calls):
            action()
        rounds.append((time.process_time() - start) / calls)
    return statistics.median(rounds)


def reference_operation(waves: int) -> Callable[[], object]:
    """One NumPy addition on 64 lanes of ``waves`` wavefronts."""
    a, b, c = (np.ones((waves, 64), np.uint32) for _ in range(3))
    return lambda: np.add(a, b, c)


def throughput(driver: emulator.EmulatedDriver, repeat: int) -> dict[str, float]:
    """256 work-groups of 4 wavefronts put 262,144 float32 elements."""
    put = Put(driver, 262_144, torch.float32, 4, 4)
    record = put.check()
    instructions, waves = sum(record.instructions.values()), record.grid[0] * record.num_warps
    taken = seconds(put.launch, repeat)
    driver.drain_launches()
    # The least that NumPy can do: each vector instruction once for all wavefronts, and the bytes once.
    vector = record.instructions["valu"] // waves
    operation = seconds(reference_operation(waves), repeat)
    source, target = put.source.numpy(), put.heaps[1][: put.n].numpy()
    copy = seconds(lambda: np.copyto(target, source), repeat)
    put.close()
    reference = vector * operation + copy
    return {
        "wavefronts": waves, "instructions": instructions, "milliseconds": taken * 1e3,
        "million wavefront-instructions per second": instructions / taken / 1e6,
        "numpy reference milliseconds": reference * 1e3, "ratio to numpy reference": taken / reference,
        "bytes per second": 2 * 4 * put.n / taken, "ratio to numpy copy": taken / copy,
    }  # fmt: skip


def latency(driver: emulator.EmulatedDriver, repeat: int) -> dict[str, float]:
    """A warm put of 1,000 float16 elements by 4 work-groups of 4 wavefronts."""
    put = Put(driver, 1_000, torch.float16, 1, 4)
    record = put.check()
    waves = record.grid[0] * record.num_warps
    issued = sum(record.instructions.values()) / waves
    taken = seconds(put.launch, repeat)
    driver.drain_launches()
    operation = seconds(reference_operation(waves), repeat)
    put.close()
    return {
        "wavefronts": waves, "issued instructions": issued, "milliseconds": taken * 1e3,
        "microseconds per issued instruction": taken / issued * 1e6, "numpy operation microseconds": operation * 1e6,
        "ratio to numpy operations": taken / (issued * operation),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each measurement; the median counts")
    parser.add_argument("--core", type=int, default=None, help="pin the process to this core")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, not {options.repeat}")
    if options.core is not None:
        if options.core not in os.sched_getaffinity(0):
            parser.error(f"--core {options.core}: this process may use {sorted(os.sched_getaffinity(0))}")
        os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    driver = emulator.activate()
    try:
        figures = {"throughput": throughput(driver, options.repeat), "latency": latency(driver, options.repeat)}
    finally:
        emulator.deactivate()
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    for title, function in (("throughput", throughput), ("latency", latency)):
        print(f"{title}: {(function.__doc__ or '').strip()}")
        for name, value in figures[title].items():
            print(f"  {name:<44}{value:>16,.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
