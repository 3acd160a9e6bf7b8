"""GPUs that are not there: what the child process of the inventory would answer about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.devices import inventory
from harness.devices.probe import MARK

MACHINE = {"torch": "2.11.0+cu130", "cuda": "13.0", "hip": None, "failed": None, "error": None, "gpus": []}
DRIVER = {"driver": True, "library": True, "kfd": False, "permission": False}
ROCM = {"torch": "2.11.0+rocm7.2", "cuda": None, "hip": "7.2"}
KFD = {"driver": False, "library": False, "kfd": True, "permission": True}


def gpus(count: int, *, arch: str = "sm_90", name: str = "NVIDIA H200", tag: str = "fake") -> list[dict[str, Any]]:
    """``count`` GPUs that all reach each other, as the child process tells them. ``tag`` makes their UUIDs unique."""
    return [
        {
            "index": index,
            "name": name,
            "arch": arch,
            "memory": 141 << 30,
            "uuid": f"GPU-{tag}-{index}",
            "bus_id": f"0000:{index + 27:02x}:00.0",
            "peers": [other for other in range(count) if other != index],
        }
        for index in range(count)
    ]


def infos(count: int, **choices: Any) -> tuple[inventory.GpuInfo, ...]:
    """The same as the inventory gives them."""
    return tuple(inventory.GpuInfo(**{**plain, "peers": tuple(plain["peers"])}) for plain in gpus(count, **choices))


def facts(found: Sequence[dict[str, Any]] = (), **changes: Any) -> dict[str, Any]:
    """What the child process answers on a machine with CUDA and these GPUs, but for ``changes``."""
    return {**MACHINE, **DRIVER, "gpus": list(found), **changes}


def answer(found: dict[str, Any]) -> bytes:
    """The child's stdout."""
    return f"\n{MARK}{json.dumps(found)}\n".encode()
