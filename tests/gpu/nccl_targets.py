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
    told = iris.broadcast({"from": iris.get_rank()}, src=1)
    number = float(iris.broadcast(2.5 + iris.get_rank(), src=0))
    try:
        iris.empty(1 << 22, dtype=torch.uint8)
        error = "none"
    except MemoryError:
        error = "MemoryError"
    return [dist.get_backend_config(), values.tolist(), told, number, error, str(values.device)]
