"""Instances of the library that a test makes, besides the rank's own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from fixtures.worker import Env
from harness.oracles import HeapImage


class OtherInstance:
    """The environment of a rank with another instance of the library in place of the rank's own."""

    def __init__(self, env: Env, iris: Any) -> None:
        self.iris, self.under_test = iris, env.under_test
        self.device_context, self.context = env.device_context, iris.get_device_context()
        self.device, self.warps, self.rank, self.world_size = env.device, env.warps, env.rank, env.world_size


@contextmanager
def standing_in(env: Env, iris: Any, image: HeapImage) -> Iterator[None]:
    """Run the body with another instance, and the image of its heap, in place of the rank's own."""
    own = env.iris, env.context, env.image
    env.iris, env.context, env.image = iris, iris.get_device_context(), image
    try:
        yield
    finally:
        env.iris, env.context, env.image = own


def release(iris: Any) -> None:
    """Close an instance, if the library can: the published API has no ``close``, dropping the instance releases it."""
    if close := getattr(iris, "close", None):
        close()


def allocator_of(env: Env, iris: Any) -> str:
    """Return the kind of an instance's allocator: ``torch`` or ``vmem``."""
    kind: str | None = getattr(iris.heap, "allocator_type", None)  # the published heap has no such attribute
    if kind is None:
        module = importlib.import_module(f"{env.under_test.name}.host.memory.allocators.vmem_allocator")
        kind = "vmem" if isinstance(iris.heap.allocator, module.VMemAllocator) else "torch"
    return kind


def preset_barrier(iris: Any, handle: Any, count: int) -> None:
    """Set every count of a group's device_barrier on this rank; the group must have used it. ``handle``: None for the
    world. A group's key is its members, in the order of the process group, or its handle; None if the group is the
    world, which a reversed group is for older releases of torch: they sort the ranks."""
    state = iris._device_barrier_state
    members = None if handle is None else tuple(dist.get_process_group_ranks(handle))
    key = next(key for key in (members, handle, None) if key in state)
    state[key].fill_(count)
