"""Functions that the benchmark of rank groups runs on ranks."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def nothing(env: Any, payload: Any) -> None:
    return None


def barrier(env: Any, payload: Any) -> None:
    import torch.distributed as dist

    dist.barrier()


def fail(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        raise ValueError("planted")
    barrier(env, payload)


def hang(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        time.sleep(10_000)


def crash(env: dict[str, Any], payload: Any) -> None:
    if env["rank"] == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    barrier(env, payload)
