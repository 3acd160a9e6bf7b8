"""The start specification of a generation of a group, and the environment variables that carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPEC_VARIABLE = "IRIS_HARNESS_RANK"
AGENT_VARIABLE = "IRIS_HARNESS_AGENT"
NO_TCP_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set for the agent only: a torchrun that a rank starts, for its own program, needs that store."""


@dataclass(frozen=True)
class Spec:
    """Start parameters of a generation of a group, as plain data.

    ``network``: the group's kind of network. ``held``: the number of descriptors that each rank receives only to hold
    them open. ``companion``: each rank has a companion, see ``companion``. The agent adds ``channel``, the descriptor
    over which ranks join (see ``joining``), and ``store``, the path of the file of torch.distributed's store;
    ``companions_store`` is that of the companions.

    With ``nodes`` greater than 1 the group has as many further ranks on each other node, see ``spanning``.
    ``world_size`` is then the number of ranks on this node, ``run_id`` is the same on all of them, ``endpoint`` is
    "HOST:PORT" of the store for rendezvous and ranks, and ``address`` is this node's in the rendezvous ("": its name).
    """

    world_size: int
    start: str
    run_id: str
    network: str
    controller: int
    environment: Mapping[str, str]
    start_timeout: float
    held: int = 0
    companion: bool = False
    channel: int = -1
    store: str = ""
    companions_store: str = ""
    nodes: int = 1
    endpoint: str = ""
    address: str = ""


def plain(spec: Spec) -> dict[str, Any]:
    """Return the fields of ``spec`` as plain data: ``Spec(**plain(spec)) == spec``."""
    return {**spec.__dict__, "environment": dict(spec.environment)}
