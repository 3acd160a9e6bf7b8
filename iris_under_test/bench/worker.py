"""One rank of a benchmark run: each configuration in turn, in step with the other ranks. Results are rank 0's.

Ranks report their progress through a store, not by collectives: a rank that failed may have left the
others in a collective of the benchmark's. Such ranks are waited for briefly; then this one ends, and the launcher ends
the rest. A rank that comes no further at all ends itself, with its stacks, when the time limit of a configuration is
over.
"""

from __future__ import annotations

import datetime
import faulthandler
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from iris_under_test.host.iris import Iris, iris
from iris_under_test.host.logging import INFO, log
from iris_under_test.host.platform import current
from iris_under_test.host.platform.timing import do_bench
from iris_under_test.host.streams import api_of

from .axes import shown
from .registry import Benchmark
from .results import FAILED, OK, SKIPPED, Result
from .state import State, check

__all__ = ["Options", "Task", "run_rank"]

_GRACE_S = 20.0
"""How long ranks are awaited by one that failed: they may be about to fail as well."""


@dataclass(frozen=True)
class Task:
    """One configuration of a benchmark."""

    name: str
    benchmark: Benchmark
    values: dict[str, Any]

    def result(self, status: str, detail: str = "") -> Result:
        """A result without figures."""
        axes = {name: _plain(value) for name, value in self.values.items()}
        return Result(self.name, self.benchmark.name, axes, status, detail)


@dataclass(frozen=True)
class Options:
    """``heap_size`` in bytes; ``setup`` is "module:function" or empty; ``time_limit`` in seconds per configuration."""

    heap_size: int
    n_warmup: int
    n_repeat: int
    use_gluon: bool
    setup: str
    time_limit: float


def run_rank(tasks: Sequence[Task], options: Options, output: str) -> None:
    """Entry point of a rank, whose number torch.distributed.elastic's environment has. Rank 0 appends one line of JSON
    per result to the file ``output``."""
    try:
        faulthandler.dump_traceback_later(options.time_limit, exit=True)
        ranks = _Ranks(options.time_limit)
        _set_up(options.setup, ranks)
        for task in tasks:
            faulthandler.dump_traceback_later(options.time_limit, exit=True)
            result = _measure(task, options, ranks)
            if ranks.rank == 0:
                log(INFO, _report(result), 0, ranks.world_size, module="bench")
                with open(output, "a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()
    except BaseException:
        # The launcher reports only that this rank ended.
        traceback.print_exc()
        sys.stderr.flush()
        raise


class _Ranks:
    """The ranks' exchange of texts through a store, which needs no process group."""

    def __init__(self, time_limit: float) -> None:
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.limit = datetime.timedelta(seconds=time_limit)
        store = TCPStore(address, port, is_master=False, timeout=self.limit)
        self.store = PrefixStore("iris.bench", store)
        self._turn = 0

    def publish(self, text: str, limit_s: float | None = None) -> list[str]:
        """Publish a text; wait for every rank's and return them in order of rank.

        Raises:
            RuntimeError: a rank timed out.
        """
        self._turn += 1
        keys = [f"{self._turn}/{rank}" for rank in range(self.world_size)]
        self.store.set(keys[self.rank], text)
        self.store.wait(keys, self.limit if limit_s is None else datetime.timedelta(seconds=limit_s))
        return [self.store.get(key).decode() for key in keys]

    def errors(self, error: str) -> str:
        """Return the errors of all ranks, by rank, or an empty text. ``error`` is this rank's own.

        A rank with an error does not wait long for the others: they may be waiting for it.
        """
        try:
            texts = self.publish(error, _GRACE_S if error else None)
        except RuntimeError:
            raise RuntimeError(f"rank {self.rank} failed, others wait for it or are stuck:\n{error}") from None
        if len(set(texts)) == 1:
            return texts[0]
        return "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(texts) if text)


def _set_up(setup: str, ranks: _Ranks) -> None:
    """The device, and the process group."""
    if setup:
        _named(setup)()
    from triton.runtime import driver

    local_rank, local_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device = driver.active.get_active_torch_device()
    api = api_of(device)
    if api is not None:
        if local_ranks > api.device_count():
            raise RuntimeError(f"{local_ranks} ranks need as many GPUs, {api.device_count()} are visible")
        api.set_device(local_rank)
    dist.init_process_group(
        dist.get_default_backend_for_device(device),
        rank=ranks.rank,
        world_size=ranks.world_size,
        store=PrefixStore("group", ranks.store),
        timeout=ranks.limit,
    )


def _measure(task: Task, options: Options, ranks: _Ranks) -> Result:
    state = State(task.values, n_warmup=options.n_warmup, n_repeat=options.n_repeat, use_gluon=options.use_gluon)
    made: list[Iris] = []
    times: list[float] = []

    def prepare() -> None:
        # Anew for each configuration: whatever it takes of the heap, the next one finds it whole.
        made.append(iris(options.heap_size))
        task.benchmark.function(state, made[0])
        check(state)

    try:
        detail = ranks.errors(_error_of(prepare)) or _disagreement(ranks, state)
        if detail:
            return task.result(FAILED, detail)
        if state.skipped is not None:
            return task.result(SKIPPED, state.skipped)
        detail = ranks.errors(_error_of(lambda: times.extend(_time(state, made[0]))))
        if detail:
            return task.result(FAILED, detail)
    finally:
        # Every rank is past the last ``errors``, so no rank accesses this heap any more.
        for ctx in made:
            ctx.close()
    result = task.result(OK)
    result.times_ms, result.n_warmup, result.device = times, state.n_warmup, _device_name()
    result.bytes, result.flops, result.counters = state.bytes, state.flops, state.counters
    return result


def _time(state: State, ctx: Any) -> list[float]:
    assert state.fn is not None
    times: list[float] = do_bench(
        state.fn,
        barrier_fn=ctx.barrier,
        preamble_fn=state.preamble_fn,
        n_warmup=state.n_warmup,
        n_repeat=state.n_repeat,
        return_mode="all",
    )
    ctx.barrier()
    if state.check_fn is not None and not state.check_fn():
        raise RuntimeError("the result is wrong: check_fn returned False")
    return times


def _disagreement(ranks: _Ranks, state: State) -> str:
    """Ranks that are about to call different numbers of times would wait for ever."""
    mine = f"skip {state.skipped!r}, warm-up {state.n_warmup}, repeat {state.n_repeat}"
    texts = ranks.publish(mine)
    if len(set(texts)) == 1:
        return ""
    return "ranks differ: " + "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts))


def _error_of(call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - reported to every rank and recorded as the result
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def _device_name() -> str:
    """``NVIDIA H200``, or ``emulated gfx942``."""
    return current().name()


def _named(target: str) -> Callable[[], Any]:
    module, _, name = target.partition(":")
    function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return function


def _report(result: Result) -> str:
    if result.mean_ms is None:
        return f"{result.name}: {result.status}, {result.detail}"
    rate = "" if result.bandwidth_gb_s is None else f", {result.bandwidth_gb_s:.4g} GB/s"
    return f"{result.name}: {result.mean_ms:.4g} ms{rate}"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else shown(value)
