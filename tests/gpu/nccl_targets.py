"""Rank functions for a process group that has nccl alone, as many users' programs have."""

from __future__ import annotations

import torch
import torch.distributed as dist

from harness import devices


def setup(info, options):
    device = devices.get(options["device"], options["arch"])
    device.activate(info["local_rank"])
    import iris_under_test

    return iris_under_test.iris(1 << 20)


def host_side(iris, payload):
    """Backend, base table, tensors, barrier, broadcast, a subgroup's barrier; returns what each rank saw."""
    values = iris.full((4,), iris.get_rank(), dtype=torch.int32)
    iris.barrier()
    group = dist.new_group([0])
    if iris.get_rank() == 0:
        iris.barrier(group=group)
    reported = iris.broadcast({"from": iris.get_rank()}, src=1)
    number = float(iris.broadcast(2.5 + iris.get_rank(), src=0))
    try:
        iris.empty(1 << 22, dtype=torch.uint8)
        error = "none"
    except MemoryError:
        error = "MemoryError"
    return [dist.get_backend_config(), values.tolist(), reported, number, error, str(values.device)]


def side_stream(iris, payload):
    """all_gather and device_barrier on a stream of the caller's, behind work that takes long; what another stream finds
    that waits for an event of it. Nothing in between waits on the host. ``payload``: whether the library is called on
    the stream, or, as the planted mistake, on another one."""
    rank, ranks = iris.get_rank(), iris.get_num_ranks()
    source, target = iris.zeros(64, 256, dtype=torch.int32), iris.zeros(64 * ranks, 256, dtype=torch.int32)
    iris.device_barrier()
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    iris.barrier()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        source.fill_(7 + rank)
        with torch.cuda.stream(side if payload else torch.cuda.default_stream()):
            iris.ccl.all_gather(target, source, async_op=True)
            iris.device_barrier()
        done.record(side)
    torch.cuda.current_stream().wait_event(done)
    seen = target.clone()
    iris.barrier()
    return sorted(set(seen.view(-1).tolist()))


def waits_for_one_stream(iris, payload):
    """Return whether the work of the stream passed to ``barrier`` had ended after it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
    iris.barrier(stream=side)
    return side.query()
