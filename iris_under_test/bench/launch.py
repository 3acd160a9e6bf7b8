"""Starting ranks, as torchrun does, on this machine."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence

from .results import NOT_RUN, Result
from .worker import Options, Task, run_rank

__all__ = ["launch"]

_START_S = 120


def launch(num_ranks: int, tasks: Sequence[Task], options: Options) -> list[Result]:
    """Run the tasks on ``num_ranks`` fresh ranks, in order; one result per task. Must be called in the main thread.

    If a rank ends, all end; the tasks that have no result by then are "not run", with the reason.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=f"iris-bench-{uuid.uuid4().hex}",
        rdzv_backend="c10d",
        # Any free port: two runs on one machine do not connect to each other.
        rdzv_endpoint="localhost:0",
        rdzv_configs={"timeout": _START_S},
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
        # No folder of logs: the ranks write to this process's output.
        logs_specs=DefaultLogsSpecs(os.devnull),
    )
    # In memory, so that nothing is left behind however this process ends.
    results = os.memfd_create("iris-bench-results", os.MFD_CLOEXEC)
    try:
        reason = ""
        try:
            elastic_launch(config, run_rank)(list(tasks), options, f"/proc/{os.getpid()}/fd/{results}")
        except ChildFailedError as failed:
            first, _ = failed.get_first_failure()
            reason = f"rank {first} ended early: see the error in its output"
        done = _read(results)
    finally:
        os.close(results)
    return [*done, *(task.result(NOT_RUN, reason) for task in tasks[len(done) :])]


def _read(descriptor: int) -> list[Result]:
    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()
    return [Result(**json.loads(line)) for line in text.splitlines()]
