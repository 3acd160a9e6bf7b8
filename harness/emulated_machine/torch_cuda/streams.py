"""Base classes of ``torch.cuda.Stream``, ``Event`` and ``CUDAGraph``, as a ROCm build has them in C++.

Operators and launches have ended when they return. A stream therefore is a number, and an event is a point in time.
"""

# torch's stubs describe builds that this module replaces parts of.
# mypy: disable-error-code="assignment,no-redef,redundant-expr,unused-ignore"
from __future__ import annotations

import time
from typing import Any

import torch

_CUDA = 1  # number of the device type


def make(native: Any) -> dict[str, type]:
    """Return the classes by their names in ``torch._C``."""

    class CudaStreamBase(torch._C.Stream):  # type: ignore[misc]
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int = 0,
            device_index: int | None = None,
            device_type: int = 0,
            stream_ptr: int = 0,
            **_: Any,
        ) -> Any:
            gpu = native.current_gpu() if device_index is None else device_index
            if stream_ptr:
                stream_id = stream_ptr
            elif device_index is None:
                stream_id = native.new_stream(priority)
            return super().__new__(cls, stream_id=stream_id, device_index=gpu, device_type=_CUDA)

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id) & ~1  # HIP's handle; the lowest bit is the priority

        @property
        def native_handle(self) -> int:
            return int(self.stream_id) & ~1

        @property
        def priority(self) -> int:
            return -(self.stream_id & 1)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -1

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            _refuse_in_capture(native)

        def __reduce__(self) -> Any:
            return type(self), (0, self.stream_id, self.device_index, self.device_type)

    class CudaEventBase:
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            event = super().__new__(cls)
            event._timed, event._time, event._device = enable_timing, None, None
            return event

        def record(self, stream: Any) -> None:
            self._time, self._device = time.perf_counter_ns(), stream.device

        def wait(self, stream: Any) -> None: ...

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            _refuse_in_capture(native)

        def elapsed_time(self, end: Any) -> float:
            if not (self._timed and end._timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._time is None or end._time is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return float((end._time - self._time) / 1e6)

        def ipc_handle(self) -> bytes:
            from .support import refuse

            raise refuse("torch.cuda.Event.ipc_handle")

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
            from .support import refuse

            raise refuse("torch.cuda.Event.from_ipc_handle")

        @property
        def device(self) -> Any:
            return self._device

        @property
        def cuda_event(self) -> int:
            return id(self) if self._time is not None else 0

        _timed: bool
        _time: int | None
        _device: Any

    class CUDAGraphBase:
        def __new__(cls, keep_graph: bool = False, **_: Any) -> Any:
            graph = super().__new__(cls)
            graph._graph, graph._pool, graph._ended = native.Graph(), (0, 0), False
            return graph

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
            if torch.cuda.current_stream().stream_id == 0:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay"
                    " them on the default stream.)"
                )
            self._pool = pool if pool is not None else pool_handle()
            self._graph.begin()

        def capture_end(self) -> None:
            native.end_capture()
            self._ended = True

        def instantiate(self) -> None:
            self._check()

        def replay(self) -> None:
            self._check()
            self._graph.replay()

        def reset(self) -> None:
            self._graph.reset()
            self._ended = False

        def pool(self) -> Any:
            return self._pool

        def enable_debug_mode(self) -> None: ...

        def debug_dump(self, path: str) -> None:
            from .support import refuse

            raise refuse("torch.cuda.CUDAGraph.debug_dump")

        def raw_cuda_graph(self) -> int:
            from .support import refuse

            raise refuse("torch.cuda.CUDAGraph.raw_cuda_graph")

        def _check(self) -> None:
            if not self._ended:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")

        _graph: Any
        _pool: Any
        _ended: bool

    return {"_CudaStreamBase": CudaStreamBase, "_CudaEventBase": CudaEventBase, "_CUDAGraph": CUDAGraphBase}


_pools = 0


def pool_handle() -> tuple[int, int]:
    """Return a new number for a graph's pool of memory."""
    global _pools
    _pools += 1
    return _pools, 0


def _refuse_in_capture(native: Any) -> None:
    if native.is_capturing():
        raise RuntimeError("HIP error: operation not permitted when stream is capturing")
