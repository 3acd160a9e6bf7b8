"""PyTorch's MultiProcContinuousTest doing nothing but a barrier: prints the median seconds. Run by ``ranks.py``."""

from __future__ import annotations

import json
import statistics
import sys
import time
import types
import unittest
from importlib.util import find_spec

import torch.distributed as dist

if find_spec("expecttest") is None:
    # PyTorch's test utilities import it for a base class with golden texts, which no barrier needs.
    expecttest = types.ModuleType("expecttest")
    expecttest.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["expecttest"] = expecttest

from torch.testing._internal.common_distributed import MultiProcContinuousTest


class Barrier(MultiProcContinuousTest):
    world_size = int(sys.argv[1]) if len(sys.argv) > 1 else 2

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    def test_barrier(self) -> None:
        dist.barrier()


def main(count: int) -> None:
    Barrier.setUpClass()
    times = []
    for step in range(count + 1):
        result = unittest.TestResult()
        begin = time.perf_counter()
        Barrier("test_barrier").run(result)
        if step:  # the first case starts the processes
            times.append(time.perf_counter() - begin)
        if not result.wasSuccessful() or result.skipped:
            raise SystemExit(f"{result.errors}{result.failures}{result.skipped}")
    Barrier.tearDownClass()
    print(json.dumps({"median": statistics.median(times)}))


if __name__ == "__main__":
    main(int(sys.argv[2]))
