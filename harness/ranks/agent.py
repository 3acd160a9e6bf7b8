"""The agent of one generation of a group: torch.distributed.elastic, as torchrun runs it, in its own session.

c10d rendezvous over a file in memory, so that no store listens; no restarts, no log folder: output goes to memory files
that the controller reads. With ``start="fork"`` ranks are forked from the agent, which has imported what they
need but never computed anything; with ``start="exec"`` (for devices whose drivers do not survive a fork) each is a
fresh interpreter, and inherits no descriptors: what a rank shall hold open comes to it over the wire.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.ranks import processes, store

SPEC_VARIABLE = "IRIS_HARNESS_RANK"
AGENT_VARIABLE = "IRIS_HARNESS_AGENT"
NO_TCP_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Of the agent alone: a torchrun that a rank starts, for a program of its own, needs that store."""
_NOT_ASKED = object()


@dataclass(frozen=True)
class Spec:
    """What a generation of a group needs to know to start; plain data.

    ``network``: the group's kind of network. ``held``: how many descriptors come to each rank just to be held open. The
    agent adds ``channel``, the descriptor over which ranks join (see ``joining``), and ``store``, the path of the file
    of torch.distributed's store.
    """

    world_size: int
    start: str
    run_id: str
    network: str
    controller: int
    environment: Mapping[str, str]
    start_timeout: float
    held: int = 0
    channel: int = -1
    store: str = ""


def main(spec: Spec, log: int, channel: int, keeper: int) -> None:
    """Run the elastic agent to its end; never returns. ``log``: the descriptor for its output."""
    processes.die_with_parent(keeper)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(spec.environment)
    os.environ[AGENT_VARIABLE] = str(os.getpid())
    # Otherwise elastic opens a TCP store next to the rendezvous. It then still looks for a free port, for MASTER_PORT;
    # nothing ever listens on that one for longer than the look takes, and no rank connects to it.
    os.environ[NO_TCP_STORE] = "1"
    if spec.start == "exec":
        os.dup2(channel, 0)  # the one descriptor that elastic leaves to the interpreters that it starts
        os.close(channel)
        channel = 0
    spec = replace(spec, channel=channel, store=store.path("ranks", spec.run_id))
    # Python 3.12 warns of a fork beside threads. Ranks never use those of the agent.
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    # Imported by the keeper already; a module of the controller must not need torch.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Without NUMA options of its own it would ask how many GPUs there are, which starts their driver in this process:
    # ranks that are forked from it could not use them. None is what it would have found on a machine without GPUs.
    numa: dict[str, Any] = {"numa_options": _NOT_ASKED} if "numa_options" in LaunchConfig.__dataclass_fields__ else {}
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.world_size,
        run_id=spec.run_id,
        role="rank",
        rdzv_backend="c10d",
        rdzv_endpoint=store.path("rendezvous", spec.run_id),
        rdzv_configs={"store_type": "file", "timeout": int(spec.start_timeout)},
        local_addr="127.0.0.1",
        max_restarts=0,
        # The controller notices the end of a rank by its pidfd and ends the group through the keeper; the agent's own
        # polling is the second line only, and slow so that it neither costs time nor reaps an exit status first.
        monitor_interval=5.0,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(os.devnull),
        **numa,
    )
    if numa:
        config.numa_options = None
    status = 0
    try:
        if spec.start == "fork":
            from harness.ranks import worker

            elastic_launch(config, worker.main)(spec)
        else:
            os.environ[SPEC_VARIABLE] = json.dumps({"path": sys.path, "spec": plain(spec)})
            code = f"import json, os, sys; sys.path[:] = json.loads(os.environ['{SPEC_VARIABLE}'])['path']; "
            code += "from harness.ranks import worker; worker.main_of_interpreter()"
            elastic_launch(config, sys.executable)("-c", code)
    except BaseException as error:  # noqa: BLE001 (it ends the process, with its reason in the log)
        print(f"elastic agent: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    sys.stderr.flush()
    os._exit(status)


def plain(spec: Spec) -> dict[str, Any]:
    """The fields of ``spec`` as they travel: ``Spec(**plain(spec)) == spec``."""
    return {**spec.__dict__, "environment": dict(spec.environment)}
