"""Kernels of a program on the emulated machine: in graphs, and on memory that they have as an address.

``test_launches.py`` runs this file under ``iris-harness emulate``.
"""

import time

import pytest
import torch
import triton
import triton.language as tl

from harness.errors import KernelFault


@triton.jit
def twice(source, target, N: tl.constexpr):
    """Example: [1, 2] gives [2, 4]."""
    places = tl.arange(0, N)
    tl.store(target + places, 2 * tl.load(source + places))


@triton.jit
def through_table(table, target):
    """Example: a table with the address of [3] stores 3."""
    tl.store(target, tl.load(tl.load(table).to(tl.pointer_type(tl.float32))))


def a_graph_runs_its_launches_at_replay_in_order_with_its_operators():
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        twice[(1,)](x, y, 4)
        z = y + 1
    assert x.tolist() == [1] * 4 and y.tolist() == [0] * 4
    graph.replay()
    assert y.tolist() == [4] * 4 and z.tolist() == [5] * 4
    graph.replay()
    assert y.tolist() == [6] * 4 and z.tolist() == [7] * 4


def kernels_reach_memory_that_no_tensor_holds_and_not_what_was_freed():
    """Such memory is a storage without a tensor: for example a peer's, which torch has opened."""
    storage = torch.full((1000,), 3.0, device="cuda").untyped_storage()
    table, target = torch.tensor([storage.data_ptr()], device="cuda"), torch.zeros(1, device="cuda")
    through_table[(1,)](table, target)
    assert target.item() == 3
    del storage
    with pytest.raises(KernelFault, match="outside every known allocation"):
        through_table[(1,)](table, target)


def a_stream_may_hold_a_tensor():
    x = torch.ones(3, device="cuda")
    x.record_stream(torch.cuda.Stream())
    assert x.sum().item() == 3


def benchmarks_repeat_a_slow_kernel_a_few_times():
    """A kernel slower than the time of all repetitions: one call, five to estimate, one to warm up, one measured."""
    x, calls = torch.ones(4, device="cuda"), []

    def slow(seconds):
        calls.append(seconds)
        time.sleep(seconds)
        twice[(1,)](x, x, 4)

    [milliseconds] = triton.testing.do_bench(lambda: slow(0.11), return_mode="all")
    assert len(calls) == 8 and x.tolist() == [2.0**8] * 4
    assert milliseconds >= 110
    # Six calls, and the capture of one, which is replayed ten times.
    milliseconds = triton.testing.do_bench_cudagraph(lambda: slow(0.03))
    assert len(calls) == 8 + 7 and x.tolist() == [2.0**24] * 4 and milliseconds > 0
    for name in ("do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(triton.testing, name):
            with pytest.raises(NotImplementedError, match=rf"triton\.testing\.{name} .*docs/emulated-machine\.md"):
                getattr(triton.testing, name)(lambda: slow(0))
    assert len(calls) == 8 + 7


def a_kernel_takes_no_memory_of_the_host_except_pinned():
    target = torch.zeros(4, device="cuda")
    with pytest.raises(ValueError, match=r"Pointer argument source cannot be accessed from Triton \(cpu tensor\?\)"):
        twice[(1,)](torch.ones(4), target, 4)
    twice[(1,)](torch.ones(4).pin_memory(), target, 4)
    assert target.tolist() == [2] * 4


if __name__ == "__main__":
    for check in (
        a_graph_runs_its_launches_at_replay_in_order_with_its_operators,
        kernels_reach_memory_that_no_tensor_holds_and_not_what_was_freed,
        a_stream_may_hold_a_tensor,
        benchmarks_repeat_a_slow_kernel_a_few_times,
        a_kernel_takes_no_memory_of_the_host_except_pinned,
    ):
        check()
        print(f"{check.__name__}: ok")
