"""``torch.distributed`` with the backend nccl on emulated GPUs: gloo moves the bytes.

Reductions of types of less than 32 bits are added up as float32 and rounded once.
"""

# torch's stubs describe builds that this module replaces parts of.
# mypy: disable-error-code="assignment,arg-type,unused-ignore"
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

_MODULE = "torch.distributed.distributed_c10d"
_SYMMETRIC = "torch.distributed._symmetric_memory"


def install(native: Any, memory: Any) -> None:
    """Give ``torch.distributed`` nccl and symmetric memory, now or when the program imports them."""

    def replace_symmetric_memory(module: Any) -> None:
        from . import symmetric_memory

        symmetric = symmetric_memory.make(native, memory)
        module._SymmetricMemory = torch._C._distributed_c10d._SymmetricMemory = symmetric  # type: ignore[misc]
        module._should_use_implicit_mempool = lambda: False
        module._emulated_operators = symmetric_memory.register_operators(symmetric)

    patches = {_MODULE: lambda module: _patch(module, native), _SYMMETRIC: replace_symmetric_memory}
    for name in [name for name in patches if name in sys.modules]:
        patches.pop(name)(sys.modules[name])
    if patches:
        sys.meta_path.insert(0, _AfterImport(patches))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Import hook that patches a module after it was executed."""

    def __init__(self, patches: dict[str, Callable[[Any], None]]) -> None:
        self.patches = patches

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self.patches:
            return None
        patch = self.patches.pop(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_patch(module: Any) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def _patch(module: Any, native: Any) -> None:
    group = _make(module, native)
    module.ProcessGroupNCCL = group
    module._NCCL_AVAILABLE = True
    package = sys.modules.get("torch.distributed")
    if package is not None:
        package.ProcessGroupNCCL = group  # type: ignore[attr-defined]
    torch._C._distributed_c10d.ProcessGroupNCCL = group  # type: ignore[misc]
    cuda_nccl: Any = torch.cuda.nccl
    cuda_nccl.version = lambda: (2, 22, 3)
    cuda_nccl.is_available = lambda tensors: True
    from torch.distributed import constants

    constants.default_pg_nccl_timeout = module.default_pg_nccl_timeout = constants.timedelta(minutes=10)  # type: ignore[attr-defined]


class Options:
    """Options of the backend nccl; only the time limit has an effect."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        from datetime import timedelta

        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = timedelta(minutes=10)
        self.backend = "nccl"
        self.config: Any = type("NCCLConfig", (), {})()
        self.global_ranks_in_group: list[int] = []
        self.group_name = self.group_desc = ""
        self.split_from: Any = None
        self.split_color = 0


def _make(module: Any, native: Any) -> type:
    from torch._C._distributed_c10d import ReduceOp, Work

    class DeviceWork(Work):  # type: ignore[misc]
        """Handle of a collective: ``finish`` runs once, after all transfers have ended."""

        def __init__(self, works: Sequence[Any], outputs: Any, finish: Callable[[], None] | None = None) -> None:
            super().__init__()
            self.works, self.outputs, self.finish, self.over = works, outputs, finish, False

        def wait(self, timeout: Any = None) -> bool:
            if not self.over:
                for work in self.works:
                    work.wait() if timeout is None else work.wait(timeout)
                if self.finish is not None:
                    self.finish()
                self.over = True
            return True

        def is_completed(self) -> bool:
            if not self.over and all(work.is_completed() for work in self.works):
                self.wait()
            return self.over

        def is_success(self) -> bool:
            return self.over

        def synchronize(self) -> None:
            self.wait()

        def block_current_stream(self) -> None:
            self.wait()

        def exception(self) -> None:
            return None

        def result(self) -> Any:
            self.wait()
            return self.outputs

        def get_future(self) -> Any:
            self.wait()
            future: Any = torch.futures.Future()
            future.set_result(self.outputs)
            return future

    def host(tensor: Any) -> Any:
        return native.on_cpu(tensor.detach()) if tensor.is_cuda else tensor.detach()

    def wire(tensor: Any) -> Any:
        """Return the tensor's values as contiguous bytes: without a copy if they are contiguous."""
        return host(tensor).contiguous().view(-1).view(torch.uint8)

    def unwire(tensor: Any, data: Any) -> None:
        target = host(tensor)
        if not target.is_contiguous() or target.data_ptr() != data.data_ptr():
            target.copy_(data.view(tensor.dtype).view(tensor.shape))

    class ProcessGroupNCCL(module.ProcessGroup):  # type: ignore[misc,name-defined]
        """Process group of ranks with emulated GPUs."""

        def __init__(self, store: Any, rank: int, size: int, options: Any = None, *_: Any) -> None:
            super().__init__(rank, size)
            self._store, self._rank, self._size = store, rank, size
            self.options = options if isinstance(options, Options) else Options()
            self._gloo = module.ProcessGroupGloo(store, rank, size, timeout=self.options._timeout)
            self._sequence = 0
            self._group_name = ""

        def getBackendName(self) -> str:  # noqa: N802 - torch's name
            return "nccl"

        supports_splitting = supports_coalescing = supports_time_estimate = False
        supports_shrinking = False

        def _get_backend(self, device: Any) -> Any:
            return self

        def _get_backend_name(self) -> str:
            return "nccl"

        @property
        def _device_types(self) -> list[Any]:
            return [torch.device("cuda")]

        @property
        def group_name(self) -> str:
            return self._group_name  # torch reads it after it has forgotten a destroyed group

        pg_name = group_name

        def getGroupName(self) -> str:  # noqa: N802 - torch's name
            return self._group_name

        def _set_group_name(self, name: str) -> None:
            self._group_name = name

        def _move(self, start: Callable[[], Any]) -> Any:
            """Start a collective; in a graph's capture, record it instead."""
            if not native.is_capturing():
                return start()
            native.record(lambda: start().wait())
            return DeviceWork((), None)

        def _reduce(self, tensors: Any, operation: Any, call: Callable[[list[Any], Any], Any]) -> Any:
            """Reduce with ``call`` in a type that holds the exact sum of two elements, then round."""
            operation = getattr(operation, "op", operation)
            average, wide, kind = operation == ReduceOp.AVG, [], operation
            if average:
                kind = ReduceOp.SUM
            if operation == getattr(ReduceOp, "PREMUL_SUM", object()):
                from .support import refuse

                raise refuse("torch.distributed.ReduceOp.PREMUL_SUM")
            for tensor in tensors:
                if tensor.dtype == torch.bool:
                    wide.append(host(tensor).to(torch.uint8))
                    kind = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(kind, kind)
                elif tensor.dtype.is_complex:
                    wide.append(torch.view_as_real(host(tensor).contiguous()))
                elif tensor.dtype.is_floating_point and tensor.element_size() < 4:
                    wide.append(host(tensor).float().contiguous())
                else:
                    wide.append(host(tensor).contiguous())

            def finish(results: Any = tensors) -> None:
                for tensor, value in zip(results, wide, strict=True):
                    if average:
                        value = value / self._size if value.is_floating_point() else value // self._size
                    if tensor.dtype.is_complex:
                        value = torch.view_as_complex(value)
                    if value.data_ptr() != tensor.data_ptr() or average:
                        host(tensor).copy_(value)

            return call(wide, kind), finish

        def allreduce(self, tensors: Any, opts: Any = None) -> Any:
            opts = opts or module.AllreduceOptions()

            def start() -> Any:
                def call(wide: Any, kind: Any) -> Any:
                    works = []
                    for each in wide:
                        options = module.AllreduceOptions()
                        options.reduceOp = kind
                        works.append(self._gloo.allreduce([each], options))
                    return works

                works, finish = self._reduce(tensors, opts.reduceOp, call)
                return DeviceWork(works, list(tensors), finish)

            return self._move(start)

        allreduce_coalesced = allreduce

        def reduce(self, tensors: Any, opts: Any = None) -> Any:
            def start() -> Any:
                def call(wide: Any, kind: Any) -> Any:
                    wide[:] = [each.clone() for each in wide]  # gloo uses other ranks' tensors as scratch
                    options = module.ReduceOptions()
                    options.reduceOp, options.rootRank = kind, opts.rootRank
                    return [self._gloo.reduce(wide, options)]

                works, finish = self._reduce(tensors, opts.reduceOp, call)
                return DeviceWork(works, list(tensors), finish if self._rank == opts.rootRank else None)

            return self._move(start)

        def broadcast(self, tensors: Any, opts: Any = None) -> Any:
            def start() -> Any:
                data = [wire(tensor) for tensor in tensors]
                works = [self._gloo.broadcast([each], opts) for each in data if each.numel()]

                def finish() -> None:
                    for tensor, each in zip(tensors, data, strict=True):
                        unwire(tensor, each)

                return DeviceWork(works, list(tensors), finish)

            return self._move(start)

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            def start() -> Any:
                data = [[torch.empty_like(wire(each)) for each in row] for row in outputs]
                works = [self._gloo.allgather([row], [wire(each)]) for row, each in zip(data, inputs, strict=True)]

                def finish() -> None:
                    for row, received in zip(outputs, data, strict=True):
                        for tensor, each in zip(row, received, strict=True):
                            unwire(tensor, each)

                return DeviceWork(works, outputs, finish)

            return self._move(start)

        def _allgather_base(self, output: Any, source: Any, opts: Any = None) -> Any:
            _check(output.numel() == source.numel() * self._size, "output size must be world_size times input size")
            rows = output.view(self._size, -1)
            return self.allgather([list(rows.unbind(0))], [source.reshape(-1)])

        def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self._allgather_base(out, each) for out, each in zip(outputs, inputs, strict=True)]
            return DeviceWork(works, list(outputs))

        def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self.allgather([row], [each]) for row, each in zip(output_lists, inputs, strict=True)]
            return DeviceWork(works, output_lists)

        def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            def start() -> Any:
                works, finishes = [], []
                for output, row in zip(outputs, inputs, strict=True):
                    parts = torch.stack([each.detach().reshape(-1) for each in row])
                    options = module.AllreduceOptions()
                    options.reduceOp = opts.reduceOp
                    works.append(self.allreduce([parts], options))
                    finishes.append((output, parts))

                def finish() -> None:
                    for output, parts in finishes:
                        host(output).copy_(host(parts)[self._rank].view(output.shape))

                return DeviceWork(works, list(outputs), finish)

            return self._move(start)

        def _reduce_scatter_base(self, output: Any, source: Any, opts: Any = None) -> Any:
            _check(source.numel() == output.numel() * self._size, "input size must be world_size times output size")
            opts = opts or module.ReduceScatterOptions()
            return self.reduce_scatter([output.view(-1)], [list(source.reshape(self._size, -1).unbind(0))], opts)

        def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self._reduce_scatter_base(out, each, opts) for out, each in zip(outputs, inputs, strict=True)]
            return DeviceWork(works, list(outputs))

        def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            def start() -> Any:
                data = [[torch.empty_like(wire(each)) for each in row] for row in outputs]
                work = self._gloo.gather(data, [wire(each) for each in inputs], opts)

                def finish() -> None:
                    for row, received in zip(outputs, data, strict=True):
                        for tensor, each in zip(row, received, strict=True):
                            unwire(tensor, each)

                return DeviceWork([work], outputs, finish)

            return self._move(start)

        def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            def start() -> Any:
                data = [torch.empty_like(wire(each)) for each in outputs]
                work = self._gloo.scatter(data, [[wire(each) for each in row] for row in inputs], opts)

                def finish() -> None:
                    for tensor, each in zip(outputs, data, strict=True):
                        unwire(tensor, each)

                return DeviceWork([work], list(outputs), finish)

            return self._move(start)

        def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            def start() -> Any:
                self._sequence += 1
                tag = 1 << 20 | self._sequence & 0xFFFF
                received = [torch.empty_like(wire(each)) for each in outputs]
                sent = [wire(each) for each in inputs]
                works = []
                for peer in range(self._size):
                    if peer != self._rank:
                        if received[peer].numel():
                            works.append(self._gloo.recv([received[peer]], peer, tag))
                        if sent[peer].numel():
                            works.append(self._gloo.send([sent[peer]], peer, tag))
                received[self._rank].copy_(sent[self._rank])

                def finish() -> None:
                    for tensor, each in zip(outputs, received, strict=True):
                        unwire(tensor, each)
                    sent.clear()

                return DeviceWork(works, list(outputs), finish)

            return self._move(start)

        def alltoall_base(
            self, output: Any, source: Any, output_splits: Any, input_splits: Any, opts: Any = None
        ) -> Any:
            outputs = output.split(list(output_splits)) if output_splits else output.chunk(self._size)
            inputs = source.split(list(input_splits)) if input_splits else source.chunk(self._size)
            return self.alltoall(list(outputs), list(inputs))

        def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
            def start() -> Any:
                data = [wire(each) for each in tensors]
                return DeviceWork([self._gloo.send(data, peer, tag)], list(tensors), data.clear)

            return self._move(start)

        def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
            def start() -> Any:
                data = [torch.empty_like(wire(each)) for each in tensors]

                def finish() -> None:
                    for tensor, each in zip(tensors, data, strict=True):
                        unwire(tensor, each)

                return DeviceWork([self._gloo.recv(data, peer, tag)], list(tensors), finish)

            return self._move(start)

        def barrier(self, opts: Any = None) -> Any:
            return DeviceWork([self._gloo.barrier()], None)

        def _set_sequence_number_for_group(self) -> None: ...

        def _get_sequence_number_for_group(self) -> int:
            return self._sequence

        def eager_connect_single_device(self, device: Any) -> None: ...

        def _set_default_timeout(self, timeout: Any) -> None:
            self._gloo._set_default_timeout(timeout)

        def abort(self) -> None: ...

        def shutdown(self) -> None: ...

    ProcessGroupNCCL.Options = Options
    for new, old in {
        "all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base",
        "all_to_all_single": "alltoall_base", "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
        "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    }.items():  # fmt: skip
        setattr(ProcessGroupNCCL, new, getattr(ProcessGroupNCCL, old))
    return ProcessGroupNCCL


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
