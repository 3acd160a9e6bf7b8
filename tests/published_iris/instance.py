"""The instance of a library with the published API, and what takes one: each hides what ``iris_under_test`` adds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import iris_under_test
from iris_under_test import ccl, ops
from iris_under_test.ccl.instance import InstanceCollectives
from iris_under_test.ops.instance import InstanceOps

COLLECTIVES = ("all_gather", "all_to_all", "all_reduce", "all_reduce_preamble", "reduce_scatter")
PRODUCTS = ("matmul_all_reduce", "all_gather_matmul", "matmul_all_gather", "matmul_reduce_scatter")


class Config(ccl.Config):
    """The published fields of a configuration."""

    def __init__(
        self,
        block_size_m: int = 32,
        block_size_n: int = 64,
        swizzle_size: int = 4,
        comm_sms: int = 64,
        num_xcds: int | None = None,
        chunk_size: int | None = None,
        use_gluon: bool = False,
        all_gather_variant: str = "persistent",
        all_reduce_variant: str = "two_shot",
        all_reduce_distribution: int = 1,
        all_reduce_num_rings: int = 1,
        all_reduce_ring_slice_n: int | None = None,
        reduce_scatter_variant: str = "two_shot",
        num_stages: int = 1,
        num_warps: int = 4,
        threads_per_warp: int = 64,
        waves_per_eu: int = 0,
    ) -> None:
        super().__init__(**{name: value for name, value in locals().items() if name not in ("self", "__class__")})


class Heap:
    """The published part of a heap."""

    def __init__(self, heap: Any) -> None:
        self._heap = heap
        self.allocator = heap.allocator
        self.heap_size = heap.heap_size

    def allocate(self, num_elements: int, dtype: Any, alignment: int = 1024, **of_its_own_factories: Any) -> Any:
        return self._heap.allocate(num_elements, dtype, alignment, **of_its_own_factories)

    def get_device(self) -> Any:
        return self._heap.get_device()

    def get_heap_bases(self) -> Any:
        return self._heap.get_heap_bases()

    def is_symmetric(self, tensor: Any) -> bool:
        return bool(self._heap.is_symmetric(tensor))

    on_symmetric_heap = is_symmetric

    def as_symmetric(self, tensor: Any) -> Any:
        return self._heap.as_symmetric(tensor)

    def refresh_peer_access(self) -> None:
        self._heap.refresh_peer_access()


class Collectives:
    """The published collectives of an instance. They return no handle."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner


class Products:
    """The published products of an instance, without preambles."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner


class Iris:
    """The published part of an instance."""

    def __init__(self, heap_size: int = 2**30, allocator_type: str = "torch") -> None:
        self._iris = inner = iris_under_test.Iris(heap_size, allocator_type)
        self.comm = None
        self.cur_rank, self.num_ranks, self.gpu_id = inner.cur_rank, inner.num_ranks, inner.gpu_id
        self.heap_size, self.device, self.heap_bases = inner.heap_size, inner.device, inner.heap_bases
        self.heap, self.tracing = Heap(inner.heap), inner.tracing
        self._device_barrier_state = inner._device_barrier_state

    @property
    def ccl(self) -> Collectives:
        return Collectives(self._iris.ccl)

    @property
    def ops(self) -> Products:
        return Products(self._iris.ops)


_METHODS = (
    "get_rank", "get_num_ranks", "get_device", "get_device_id", "get_cu_count", "get_heap_bases", "get_device_context",
    "is_symmetric", "as_symmetric", "barrier", "device_barrier", "broadcast", "debug", "info", "warning", "error",
    "zeros", "ones", "empty", "full", "zeros_like", "arange", "linspace", "rand", "randn", "randint", "uniform",
)  # fmt: skip


def iris(heap_size: int = 2**30, allocator_type: str = "torch") -> Iris:
    return Iris(heap_size, allocator_type)


def function_of_collective(op: str) -> Callable[..., Any]:
    """Return a collective as a function, which takes the instance after the tensors."""

    def function(output_tensor: Any, input_tensor: Any, ctx: Iris, *arguments: Any, **keywords: Any) -> Any:
        return getattr(ctx.ccl, op)(output_tensor, input_tensor, *arguments, **keywords)

    function.__name__ = op
    return function


def function_of_product(op: str) -> Callable[..., Any]:
    """Return a product as a function, which takes the instance first."""

    def function(ctx: Iris, *arguments: Any, **keywords: Any) -> Any:
        return getattr(ops, op)(ctx._iris, *arguments, **keywords)

    function.__name__ = op
    return function


def _forwarded(attribute: str, name: str, inner: Any, *, result: bool = True) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        value = getattr(getattr(self, attribute), name)(*arguments, **keywords)
        return value if result else None

    method.__name__ = name
    method.__signature__ = inspect.signature(getattr(inner, name))  # type: ignore[attr-defined]
    return method


for _name in _METHODS:
    setattr(Iris, _name, _forwarded("_iris", _name, iris_under_test.Iris))
for _name in COLLECTIVES:  # all_reduce returns its workspace, the others nothing
    setattr(Collectives, _name, _forwarded("_inner", _name, InstanceCollectives, result="all_reduce" in _name))
for _name in PRODUCTS:
    setattr(Products, _name, _forwarded("_inner", _name, InstanceOps))
