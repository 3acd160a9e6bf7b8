"""``torch.distributed`` with the backend nccl on emulated GPUs: gloo moves the bytes.

Reductions of types of less than 32 bits are added up as float32 and rounded once. gloo takes more than NCCL does: what
NCCL refuses is refused here, with torch's text.
"""

# torch's stubs describe builds that this module replaces parts of.
# mypy: disable-error-code="assignment,arg-type,unused-ignore"
from __future__ import annotations

import copy
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .support import refuse

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
    _describe_groups(module, group)
    package = sys.modules.get("torch.distributed")
    if package is not None:
        package.ProcessGroupNCCL = group  # type: ignore[attr-defined]
    torch._C._distributed_c10d.ProcessGroupNCCL = group  # type: ignore[misc]
    cuda_nccl: Any = torch.cuda.nccl
    cuda_nccl.version = lambda: (2, 22, 3)
    cuda_nccl.is_available = lambda tensors: True
    from torch.distributed import constants

    constants.default_pg_nccl_timeout = module.default_pg_nccl_timeout = constants.timedelta(minutes=10)  # type: ignore[attr-defined]


def _describe_groups(module: Any, kind: Any) -> None:
    """Give each new group what torch passes to no backend: the device bound to it, and its types of devices."""
    create = module._new_process_group_helper

    @functools.wraps(create)
    def helper(*arguments: Any, **named: Any) -> Any:
        created = create(*arguments, **named)
        if isinstance(created[0], kind):
            given = inspect.signature(create).bind(*arguments, **named).arguments
            backends = module.BackendConfig(module.Backend(str(given["backend"]))).get_device_backend_map()
            created[0]._types = [torch.device(each) for each in ("cpu", "cuda") if each in backends]
            created[0]._bind(given.get("device_id"))
        return created

    module._new_process_group_helper = helper


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
            self._sequence = self._splits = 0
            self._group_name = ""
            self._types = [torch.device("cuda")]
            self._bound: Any = None
            self._queued: list[Any] | None = None  # calls since _start_coalescing
            self.options.split_from = None  # a copy of the options must not copy a group

        def getBackendName(self) -> str:  # noqa: N802 - torch's name
            return "nccl"

        supports_splitting = hasattr(module.ProcessGroup, "split_group")
        supports_coalescing = True
        supports_time_estimate = supports_shrinking = False
        bound_device_id: Any = None

        def _bind(self, device: Any) -> None:
            self._bound = device
            if self.supports_splitting:  # torch splits the groups of a bound device
                self.bound_device_id = device

        def _get_backend(self, device: Any) -> Any:
            kind = torch.device(device).type
            if kind not in [each.type for each in self._types]:
                raise RuntimeError(f"No backend type associated with device type {kind}")
            return self._gloo if kind == "cpu" else self

        def _get_backend_name(self) -> str:
            return "nccl"

        @property
        def _device_types(self) -> list[Any]:
            return self._types

        def get_group_store(self) -> Any:
            return self._store

        def comm_split_count(self) -> int:
            return self._splits

        def perform_nocolor_split(self, device: Any) -> None: ...

        def split_group(
            self, new_ranks: Any, timeout: Any = None, opts: Any = None, group_name: Any = None,
            group_desc: Any = None, device_types: Any = None,
        ) -> Any:  # fmt: skip
            """Return the group of ``new_ranks``, ranks of this group; None to the ranks outside it."""
            ranks = sorted(new_ranks)
            _check(bool(ranks) and len(set(ranks)) == len(ranks), f"split ranks must be distinct, got {ranks}")
            _check(
                ranks[0] >= 0 and ranks[-1] < self._size, f"split ranks must be in 0 to {self._size - 1}, got {ranks}"
            )
            self._splits += 1
            if self._rank not in ranks:
                return None
            options = copy.deepcopy(opts if isinstance(opts, Options) else self.options)
            if timeout is not None:
                options._timeout = timeout
            above = self.options.global_ranks_in_group or range(self._size)
            options.global_ranks_in_group = [above[rank] for rank in ranks]
            name = group_name or f"{self._group_name}:split:{'_'.join(map(str, ranks))}"
            part = ProcessGroupNCCL(
                module.PrefixStore(f"{name}/", self._store), ranks.index(self._rank), len(ranks), options
            )
            part._set_group_name(name)
            part._set_group_desc(group_desc or f"{self.group_desc}:split:{self._splits}")
            kept = [torch.device(each).type for each in device_types or self._types]
            part._types = [each for each in self._types if each.type in kept]
            part._bind(self._bound)
            return part

        @property
        def group_name(self) -> str:
            return self._group_name  # torch reads it after it has forgotten a destroyed group

        pg_name = group_name

        def getGroupName(self) -> str:  # noqa: N802 - torch's name
            return self._group_name

        def _set_group_name(self, name: str) -> None:
            self._group_name = name

        def _move(self, start: Callable[[], Any]) -> Any:
            """Start a collective, or queue it while calls are coalesced, or record it in a graph's capture."""
            if self._queued is not None:
                work = DeviceWork([], None)
                self._queued.append((start, work))
                return work
            if not native.is_capturing():
                return start()
            native.record(lambda: start().wait())
            return DeviceWork((), None)

        def _start_coalescing(self, device: Any) -> None:
            self._get_backend(device)
            self._queued = []

        def _end_coalescing(self, device: Any) -> Any:
            """Start all calls that were queued, as NCCL does, so that no order of sends and receives can block."""
            queued, self._queued = self._queued or [], None

            def start() -> Any:
                for begin, work in queued:
                    work.works, work.over = [begin()], False
                return DeviceWork([work for _, work in queued], None)

            return self._move(start)

        def _admit(self, *tensors: Any, layout: str = "contiguous") -> None:
            """Refuse tensors that NCCL refuses; ``layout``: the memory formats that the call takes."""
            for tensor in tensors:
                kind = tensor.device.type
                self._get_backend(tensor.device)
                if kind == "cpu":
                    continue  # gloo's, in a group for both types of devices
                if self._bound is not None and tensor.device != self._bound:
                    raise torch._C._DistBackendError(
                        "Attempt to perform collective on tensor not on device passed to init_process_group: the"
                        f" tensor is on {tensor.device}, device_id is {self._bound}"
                    )
                if layout == "any" or _in_torch_order(tensor):
                    continue
                if layout == "contiguous" or (layout == "dense" and not _is_dense(tensor)):
                    raise ValueError(
                        "Tensors must be contiguous"
                        if layout == "contiguous"
                        else "Tensors must be non-overlapping and dense"
                    )
                if layout == "point to point" and not ProcessGroupNCCL._warned:
                    ProcessGroupNCCL._warned = True
                    warnings.warn(
                        "Detected non-contiguous tensor in P2P operations. It is user responsibility to guarantee that"
                        " source and destination tensors have the same contiguity format.",
                        stacklevel=4,
                    )

        _warned = False

        @staticmethod
        def _admit_operation(operation: Any, tensors: Any) -> None:
            operation = getattr(operation, "op", operation)
            for tensor in tensors:
                if tensor.is_cuda and operation in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
                    name = next(each for each in ("BAND", "BOR", "BXOR") if operation == getattr(ReduceOp, each))
                    raise ValueError(f"Cannot use ReduceOp.{name} with NCCL")
                if tensor.is_cuda and operation == ReduceOp.AVG and tensor.dtype == torch.bool:
                    raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")

        def _reduce(self, tensors: Any, operation: Any, call: Callable[[list[Any], Any], Any]) -> Any:
            """Reduce with ``call`` in a type that holds the exact sum of two elements, then round."""
            operation = getattr(operation, "op", operation)
            average, wide, kind = operation == ReduceOp.AVG, [], operation
            if average:
                kind = ReduceOp.SUM
            if operation == getattr(ReduceOp, "PREMUL_SUM", object()):
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

        def allreduce(self, tensors: Any, opts: Any = None, layout: str = "contiguous") -> Any:
            opts = opts or module.AllreduceOptions()
            self._admit(*tensors, layout=layout)
            self._admit_operation(opts.reduceOp, tensors)

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

        def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
            return self.allreduce(tensors, opts, layout="dense")

        def reduce(self, tensors: Any, opts: Any = None) -> Any:
            opts = opts or module.ReduceOptions()
            self._admit(*tensors)
            self._admit_operation(opts.reduceOp, tensors)

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
            self._admit(*tensors)

            def start() -> Any:
                data = [wire(tensor) for tensor in tensors]
                works = [self._gloo.broadcast([each], opts) for each in data if each.numel()]

                def finish() -> None:
                    for tensor, each in zip(tensors, data, strict=True):
                        unwire(tensor, each)

                return DeviceWork(works, list(tensors), finish)

            return self._move(start)

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            self._admit(*inputs)
            self._admit(*(each for row in outputs for each in row), layout="any")

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
            self._admit(source, output)
            _check_types(output, source, "output tensor must have the same type as input tensor")
            _check(
                output.numel() == source.numel() * self._size,
                "output tensor size must be equal to world_size times input tensor size",
            )
            rows = output.view(self._size, -1)
            return self.allgather([list(rows.unbind(0))], [source.reshape(-1)])

        def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self._allgather_base(out, each) for out, each in zip(outputs, inputs, strict=True)]
            return DeviceWork(works, list(outputs))

        def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self.allgather([row], [each]) for row, each in zip(output_lists, inputs, strict=True)]
            return DeviceWork(works, output_lists)

        def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            opts = opts or module.ReduceScatterOptions()
            self._admit(*outputs)
            self._admit(*(each for row in inputs for each in row), layout="any")
            self._admit_operation(opts.reduceOp, outputs)

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
            _check_types(output, source, "input tensor must be the same type as the output tensor.")
            self._admit(output, source)
            _check(
                source.numel() == output.numel() * self._size,
                "input tensor must be the same size as output size times world size",
            )
            return self.reduce_scatter([output.view(-1)], [list(source.reshape(self._size, -1).unbind(0))], opts)

        def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self._reduce_scatter_base(out, each, opts) for out, each in zip(outputs, inputs, strict=True)]
            return DeviceWork(works, list(outputs))

        def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            self._admit(*inputs)
            self._admit(*(each for row in outputs for each in row), layout="any")

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
            self._admit(*outputs)
            self._admit(*(each for row in inputs for each in row), layout="any")

            def start() -> Any:
                data = [torch.empty_like(wire(each)) for each in outputs]
                work = self._gloo.scatter(data, [[wire(each) for each in row] for row in inputs], opts)

                def finish() -> None:
                    for tensor, each in zip(outputs, data, strict=True):
                        unwire(tensor, each)

                return DeviceWork([work], list(outputs), finish)

            return self._move(start)

        def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            self._admit(*outputs, *inputs)

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
            self._admit(output, source)
            _check_types(output, source, "output tensor must have the same type as input tensor")
            outputs = output.split(list(output_splits)) if output_splits else output.chunk(self._size)
            inputs = source.split(list(input_splits)) if input_splits else source.chunk(self._size)
            return self.alltoall(list(outputs), list(inputs))

        def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
            self._admit(*tensors, layout="point to point")

            def start() -> Any:
                data = [wire(each) for each in tensors]
                return DeviceWork([self._gloo.send(data, peer, tag)], list(tensors), data.clear)

            return self._move(start)

        def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
            self._admit(*tensors, layout="point to point")

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


def _check_types(output: Any, source: Any, message: str) -> None:
    if output.dtype != source.dtype:
        raise TypeError(message)


def _in_torch_order(tensor: Any) -> bool:
    """Return whether the tensor is contiguous, or contiguous in a memory format of torch."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.is_contiguous() or (last is not None and tensor.is_contiguous(memory_format=last))


def _is_dense(tensor: Any) -> bool:
    """Return whether the elements fill their memory without gaps, in any order of the dimensions."""
    ordered = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return bool(ordered.is_contiguous())
