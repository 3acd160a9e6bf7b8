"""The agent of one generation of a group: torch.distributed.elastic, as torchrun runs it, in its own session.

The c10d rendezvous of a group on one machine uses a file in memory, so that no store listens; that of a group on
several nodes uses the group's TCP store, see ``spanning``. There are no restarts and no log folder: output goes to
memory files that the controller reads. With ``start="fork"`` ranks are forked from the agent, which has
imported their modules but never computed anything. With ``start="exec"`` (for devices whose drivers do not survive a
fork) each rank is a fresh interpreter and inherits no descriptors: it receives those that it must hold open over the
wire.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from dataclasses import replace
from typing import Any

from harness.ranks import processes, store, worker
from harness.ranks.spec import AGENT_VARIABLE, NO_TCP_STORE, SPEC_VARIABLE, Spec, plain

_NO_QUERY = object()


def main(spec: Spec, log: int, channel: int, keeper: int) -> None:
    """Run the elastic agent until it ends; never returns. ``log``: the descriptor for its output."""
    processes.die_with_parent(keeper)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(spec.environment)
    os.environ[AGENT_VARIABLE] = str(os.getpid())
    # Otherwise elastic opens a TCP store next to the rendezvous. Even with this, elastic looks for a free port for
    # MASTER_PORT: it listens on that port only during this search, and no rank connects to it.
    os.environ[NO_TCP_STORE] = "1"
    if spec.start == "exec":
        os.dup2(channel, 0)  # the one descriptor that elastic leaves to the interpreters that it starts
        os.close(channel)
        channel = 0
    spec = replace(spec, channel=channel)
    if spec.nodes == 1:
        spec = replace(spec, store=store.path("ranks", spec.run_id))
    if spec.companion:
        spec = replace(spec, companions_store=store.path("companions", spec.run_id))
    # Python 3.12 warns of a fork in a process with threads. Ranks never use the agent's threads.
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    # Imported by the keeper already; a module of the controller must not need torch.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Without NUMA options elastic would query the number of GPUs, which starts their driver in this process: ranks that
    # are forked from it could not use the GPUs. None is the value that elastic uses on a machine without GPUs.
    numa: dict[str, Any] = {"numa_options": _NO_QUERY} if "numa_options" in LaunchConfig.__dataclass_fields__ else {}
    config = LaunchConfig(
        min_nodes=spec.nodes,
        max_nodes=spec.nodes,
        nproc_per_node=spec.world_size,
        run_id=spec.run_id,
        role="rank",
        rdzv_backend="c10d",
        **_rendezvous(spec),
        max_restarts=0,
        # The controller notices the end of a rank by its pidfd and ends the group through the keeper. The agent's own
        # polling is only a fallback, and slow so that it neither costs time nor reaps an exit status first.
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
            elastic_launch(config, worker.main)(spec)
        else:
            os.environ[SPEC_VARIABLE] = json.dumps({"path": sys.path, "spec": plain(spec)})
            code = f"import json, os, sys; sys.path[:] = json.loads(os.environ['{SPEC_VARIABLE}'])['path']; "
            code += f"import {worker.__name__} as worker; worker.main_of_interpreter()"
            elastic_launch(config, sys.executable)("-c", code)
    except BaseException as error:  # noqa: BLE001 (it ends the process, with its reason in the log)
        print(f"elastic agent: {type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _rendezvous(spec: Spec) -> dict[str, Any]:
    """Return the fields of LaunchConfig for the rendezvous of a group's agents."""
    timeout = int(spec.start_timeout)
    if spec.nodes == 1:
        return {
            "rdzv_endpoint": store.path("rendezvous", spec.run_id),
            "rdzv_configs": {"store_type": "file", "timeout": timeout},
            "local_addr": "127.0.0.1",
        }
    # The store is there already, so no agent hosts it.
    return {
        "rdzv_endpoint": spec.endpoint,
        "rdzv_configs": {"is_host": False, "timeout": timeout},
        "local_addr": spec.address or None,
    }
