"""Fake GPUs: answers of the inventory's child process about GPUs that this machine does not have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.devices.gpu_kind import GpuInfo
from harness.devices.probe import MARK

MACHINE = {"torch": "2.11.0+cu130", "cuda": "13.0", "hip": None, "failed": None, "error": None, "gpus": []}
DRIVER = {"driver": True, "library": True, "kfd": False, "permission": False}
ROCM = {"torch": "2.11.0+rocm7.2", "cuda": None, "hip": "7.2"}
KFD = {"driver": False, "library": False, "kfd": True, "permission": True}


def gpus(
    count: int, *, arch: str = "sm_90", name: str = "NVIDIA H200", tag: str = "fake", device: str = "cuda"
) -> list[dict[str, Any]]:
    """``count`` GPUs with access to each other, as the child process reports them. ``tag`` makes their UUIDs unique."""
    return [
        {
            "index": index,
            "name": name,
            "arch": arch,
            "memory": 141 << 30,
            "uuid": f"GPU-{tag}-{index}",
            "bus_id": f"0000:{index + 27:02x}:00.0",
            "peers": [other for other in range(count) if other != index],
            "device": device,
        }
        for index in range(count)
    ]


def infos(count: int, **choices: Any) -> tuple[GpuInfo, ...]:
    """Return the same GPUs as the inventory returns them."""
    return tuple(GpuInfo(**{**plain, "peers": tuple(plain["peers"])}) for plain in gpus(count, **choices))


def facts(gpus: Sequence[dict[str, Any]] = (), **changes: Any) -> dict[str, Any]:
    """Facts that the child process reports on a machine with CUDA and these GPUs, with ``changes`` applied."""
    return {**MACHINE, **DRIVER, "gpus": list(gpus), **changes}


def answer(facts_of_child: dict[str, Any]) -> bytes:
    """Return the child's stdout."""
    return f"\n{MARK}{json.dumps(facts_of_child)}\n".encode()
