"""The ranks' side of ``iris-harness bench``: buffers, calls, clocks, and the check of every timed output.

    setup        once per process: the library's heap, torch's own buffers, the expected output
    open_size    op, element type and shapes of the size that follows
    prepare      one cell: compile, warm up, capture
    measure      one timing of one cell, checked

Each timing starts with new inputs and an output in which every byte is wrong. Directly after the timed calls, on the
same stream and before the next barrier of the ranks, the input is overwritten and the output compared: a call that was
not complete would give a wrong output. (In place the comparison comes first, and other ranks' outputs would be wrong.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from command_line.bench.ops import OURS, Layout, Turn, op_named
from command_line.bench.plan import TORCH_QUEUED
from fixtures import implementation
from harness import devices
from harness.cases import dtypes
from harness.errors import HarnessError, UsageError
from harness.oracles import reference

Call = Callable[[], None]
CellName = tuple[str, "int | None", tuple[tuple[str, Any], ...]]
"""The fields of a CellKey."""
_HOLD_CYCLES, _GRAPH_HOLD_CYCLES = 4_000_000, 1_600_000
"""About 2 ms of a GPU's time: long enough for the host to enqueue a timing of 20 single calls after it. Launching a
graph takes the host less time."""


class Bench:
    """State of one rank.

    ``ours`` (the library's) and ``theirs`` (torch.distributed's) are pairs (output, input): on the symmetric heap and
    in torch's own memory, as users of each have them. For an op in place, both are the same tensor.
    """

    def __init__(
        self, rank: int, ranks: int, device: devices.Device, under_test: implementation.Implementation, plan: Any
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        self.device = device
        self.under_test = under_test
        self.doing = "setting up"
        self.iris = under_test.iris(heap_size=plan["heap_bytes"])
        sizes = plan["output_bytes"], plan["input_bytes"]
        self._heap = [self.iris.empty(size, dtype=torch.uint8) for size in sizes]
        self.where = self._heap[0].device
        self._own = [torch.empty(size, dtype=torch.uint8, device=self.where) for size in sizes]
        self._expected = torch.empty(plan["output_bytes"], dtype=torch.uint8, device=self.where)
        self.clock = clock_of(self.where)
        self._cells: dict[CellName, tuple[Call, int]] = {}
        self._groups: dict[int, Any] = {}

    def open_size(self, op: str, dtype: str, layout: Layout) -> None:
        """Switch to a new op, dtype and shapes, and drop the cells of the previous size."""
        self.device.synchronize()
        self._cells.clear()
        self.op, self.dtype, self._layout = op_named(op), dtype, layout
        self.ours = self._shaped(self._heap, theirs=False)
        self.theirs = self._shaped(self._own, theirs=True)

    def prepare(self, cell: CellName, calls: int, captured: bool) -> str | None:
        """Prepare ``cell``: two calls to compile and warm up, then ``calls`` calls as one unit.

        Returns the reason if the calls cannot be captured in a graph ("" if only other ranks cannot), else None.
        """
        self._cells.pop(cell, None)
        call = self._call(*cell)
        for _ in range(2):
            call()
        self.device.synchronize()
        reference.barrier()
        if not captured or cell[0] == TORCH_QUEUED:
            self._cells[cell] = _repeated(call, calls), calls
            return None
        refusal = None
        try:
            self._cells[cell] = self.clock.captured(call, calls), calls
        except RuntimeError as error:
            refusal = _first_cause(error)
        if not reference.bool_all(refusal is None):
            self._cells.pop(cell, None)
            return refusal or ""
        self._cells[cell][0]()  # the first replay is slow
        self.device.synchronize()
        reference.barrier()
        return None

    def measure(self, cell: CellName, generation: int) -> tuple[float, str | None]:
        """Return the seconds from when all ranks are ready until this rank's calls end, and the output's difference.

        The difference is a text, or None if the output is right.
        """
        theirs = cell[0] not in OURS
        output, source = self.theirs if theirs else self.ours
        run, calls = self._cells[cell]
        turn = Turn(self.rank, self.ranks, generation, cell[0], self.dtype, calls)
        expected = self._expected[: output.nbytes].view(output.dtype).view(output.shape)
        self._set_up(output, source, expected, turn)
        self.device.synchronize()
        reference.barrier()
        seconds, right = self.clock.time(run, lambda: _check(output, source, expected))
        difference = None
        if not right:
            if source is output:
                _words(output).bitwise_not_()  # restore the output, which _check inverted after the comparison
            difference = _difference(output, expected)
        self.device.drain_launches()
        reference.barrier()  # no rank prepares the next timing while others still read
        return seconds, difference

    def describe(self) -> str:
        """Return what this rank is doing, for the report of a hang."""
        return f"benchmark: {self.doing}"

    def poisoned(self) -> bool:
        """Return True if this process must be replaced, because a fault destroyed its GPU context."""
        return not self.device.healthy()

    def close(self) -> None:
        """Release the graphs before the communicators that they use."""
        self.device.synchronize()
        self._cells.clear()

    def _set_up(self, output: torch.Tensor, source: torch.Tensor, expected: torch.Tensor, turn: Turn) -> None:
        """Write a new input, the expected output, and an output in which every byte is wrong."""
        self.op.reference(expected, turn)
        torch.bitwise_not(_words(expected), out=_words(output))
        rows = self.op.written(len(output), turn)
        for others in (slice(0, rows.start), slice(rows.stop, None)):
            expected[others] = output[others]
        self.op.fill(source, turn)

    def _call(self, backend: str, cus: int | None, fields: tuple[tuple[str, Any], ...]) -> Call:
        if backend not in OURS:
            output, source = self.theirs
            group = self._limited(cus) if cus is not None else None
            return lambda: self.op.theirs(output, source, group)
        output, source = self.ours
        config = self._config(backend, cus, dict(fields))
        kept: dict[str, Any] = {}

        def call() -> None:
            handle = self.op.ours(self.iris.ccl, output, source, config, kept)
            if callable(getattr(handle, "wait", None)):
                handle.wait()
            elif callable(getattr(self.iris, "device_barrier", None)):
                self.iris.device_barrier()
            else:
                raise UsageError(
                    f"{self.under_test.name}: {self.op.name} returned no handle, and there is no device_barrier, so"
                    " that the end of the op cannot be timed: provide one of them"
                )

        return call

    def _config(self, backend: str, cus: int | None, fields: dict[str, Any]) -> Any:
        """Return a Config with these fields, or the library's default Config if there are none.

        ``cus``, if not None, sets the number of programs in both.
        """
        use_gluon = backend == "gluon"
        if fields:
            return self.under_test.config(use_gluon=use_gluon, comm_sms=cus, **fields)
        return self.under_test.default_config(
            self.op.name,
            element_size=dtypes.of_name(self.dtype).itemsize,
            world_size=self.ranks,
            nbytes=self._layout.size,
            use_gluon=use_gluon,
            comm_sms=cus,
        )

    def _limited(self, ctas: int) -> Any:
        """Return a group of all ranks whose NCCL communicator uses at most ``ctas`` CTAs; NCCL may use fewer."""
        if ctas not in self._groups:
            options = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = 1
            options.config.max_ctas = ctas
            self._groups[ctas] = dist.new_group(backend="nccl", pg_options=options)
        return self._groups[ctas]

    def _shaped(self, buffers: list[torch.Tensor], theirs: bool) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = dtypes.of_name(self.dtype)
        output, source = (
            buffer[: rows * columns * dtype.itemsize].view(dtype).view(rows, columns)
            for buffer, (rows, columns) in zip(buffers, self._layout.shapes(theirs), strict=True)
        )
        return output, output if self.op.in_place(theirs) else source


class WallClock:
    """Clock for a device whose calls are complete when they return."""

    def captured(self, call: Call, calls: int) -> Call:
        """Raise HarnessError: this device has no graphs."""
        raise HarnessError(f"{calls} calls of {call} cannot be captured: the device has no graphs")

    def time(self, run: Call, check: Callable[[], torch.Tensor]) -> tuple[float, bool]:
        """Return the seconds that ``run`` took, and the result of ``check`` directly after it."""
        reference.barrier()
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        return seconds, bool(check())


class DeviceClock:
    """Clock that uses events on the current stream. A small all_reduce in the same stream aligns the ranks.

    The device is blocked while the host enqueues the timing, so that no delay of the host falls between the events.
    """

    def __init__(self, device: torch.device) -> None:
        self._token = torch.zeros(1, device=device)
        self._started, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def captured(self, call: Call, calls: int) -> Call:
        """Capture ``calls`` calls in one graph; return a function that replays it."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # thread_local: another thread, NCCL's watchdog, may query its events during the capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(calls):
                    call()
        finally:
            torch.cuda.set_stream(stream)  # a failed capture leaves its own stream as the current one
        return _Replay(graph)

    def time(self, run: Call, check: Callable[[], torch.Tensor]) -> tuple[float, bool]:
        """Return the seconds of ``run`` on the device, and the result of ``check``, enqueued directly after it."""
        torch.cuda._sleep(_GRAPH_HOLD_CYCLES if isinstance(run, _Replay) else _HOLD_CYCLES)  # type: ignore[no-untyped-call]
        dist.all_reduce(self._token)
        self._started.record()
        run()
        self._ended.record()
        right = bool(check())  # waits
        return self._started.elapsed_time(self._ended) / 1e3, right


def clock_of(device: torch.device) -> WallClock | DeviceClock:
    """Return the clock for calls on that device."""
    return WallClock() if device.type == "cpu" else DeviceClock(device)


@dataclass(frozen=True)
class _Replay:
    graph: Any

    def __call__(self) -> None:
        self.graph.replay()


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Bench:
    """Create the state of one rank process; called once per process.

    ``options`` holds device, arch, implementation, and ``plan`` with heap_bytes, input_bytes and output_bytes.
    """
    device = devices.known(options["device"], options["arch"])
    device.activate(info["local_rank"])
    torch.set_num_threads(1)
    under_test = implementation.load(options["implementation"])
    return Bench(info["rank"], info["world_size"], device, under_test, options["plan"])


def describe_rig(bench: Bench, _: object) -> dict[str, Any]:
    """Return the description of the ranks for the results: names, versions, and the environment variables of the
    libraries that torch.distributed uses."""
    prefixes = tuple(prefix for kind in devices.gpu_kinds() for prefix in kind.library_prefixes)
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
    kind = bench.device.kind
    if not isinstance(kind, devices.GpuKind):
        return {"theirs": "torch.distributed (gloo)", "settings": settings}
    return {
        "theirs": f"torch.distributed ({kind.collectives()})",
        "gpu": kind.torch_module().get_device_name(bench.where),
        "runtime": kind.runtime_version(),
        "settings": settings,
    }


def open_size(bench: Bench, payload: Mapping[str, Any]) -> None:
    """Switch to a new size. ``payload`` holds op, dtype, and the fields of a Layout."""
    shapes = {name: value for name, value in payload.items() if name not in ("op", "dtype")}
    bench.doing = f"opening {payload['size']} bytes of {payload['op']}"
    bench.open_size(payload["op"], payload["dtype"], Layout(**shapes))


def prepare(bench: Bench, payload: Mapping[str, Any]) -> str | None:
    """Call ``Bench.prepare``. ``payload`` holds cell (the fields of a CellKey), calls and captured."""
    bench.doing = f"preparing {payload}"
    return bench.prepare(payload["cell"], payload["calls"], payload["captured"])


def measure(bench: Bench, payload: Mapping[str, Any]) -> tuple[float, str | None]:
    """Call ``Bench.measure``. ``payload`` holds cell and generation.

    Returns the seconds of all calls together, and the output's difference or None.
    """
    bench.doing = f"timing {payload}"
    return bench.measure(payload["cell"], payload["generation"])


def _words(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.int32)


def _check(output: torch.Tensor, source: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Overwrite the input and return a tensor that is True if the output is right, bit for bit.

    It is enqueued after the calls. Once they are complete, no rank reads the input any more.
    """
    if source is not output:
        _words(source).bitwise_not_()
    right = torch.ne(_words(output), _words(expected)).any().logical_not()
    if source is output:
        _words(source).bitwise_not_()
    return right


def _difference(output: torch.Tensor, expected: torch.Tensor) -> str:
    received, wanted = (tensor.view(-1).view(_BITS[output.dtype.itemsize]) for tensor in (output, expected))
    count, first = _differing(received, wanted)
    if count == 0:
        return "the output was wrong directly after the calls and is right now: it was not complete"
    got, want = int(received[first]), int(wanted[first])
    mask = (1 << 8 * output.dtype.itemsize) - 1
    problem = "was never written" if got == ~want else f"holds 0x{got & mask:x} instead of 0x{want & mask:x}"
    row, column = divmod(first, output.shape[1])
    place = f"row {row} of {len(output)}, column {column}"
    return f"{count:,} of {output.numel():,} elements are wrong; the first ({place}) {problem}"


def _differing(received: torch.Tensor, wanted: torch.Tensor) -> tuple[int, int]:
    """Return the number of elements that differ, and the index of the first."""
    count, first = 0, -1
    for start in range(0, received.numel(), _PIECE):
        wrong = torch.nonzero(received[start : start + _PIECE] != wanted[start : start + _PIECE]).view(-1)
        if len(wrong) and first < 0:
            first = start + int(wrong[0])
        count += len(wrong)
    return count, first


def _first_cause(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _repeated(call: Call, calls: int) -> Call:
    def run() -> None:
        for _ in range(calls):
            call()

    return run


_PIECE = 1 << 24
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
