"""Functions that the ranks of a group on several nodes execute."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harness import compiling


def who(info: dict[str, Any], _: None) -> dict[str, Any]:
    total = torch.tensor([info["rank"] + 1])
    dist.all_reduce(total)
    place = {"rank": info["rank"], "node": info["node"], "nodes": info["nodes"], "local": info["local_rank"]}
    return {**place, "host": socket.gethostname(), "total": int(total), "pid": os.getpid()}


def leave_trace(info: dict[str, Any], name: str) -> list[str]:
    """Make a file in shared memory on rank 0, and return the names of the files there on every rank."""
    if info["rank"] == 0:
        (Path("/dev/shm") / name).write_text("there")
    dist.barrier()
    return os.listdir("/dev/shm")


def command_lines(info: dict[str, Any], _: None) -> list[str]:
    """Return the command lines of the nodes' processes that this rank can see."""
    nodes = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            nodes += ["node"] if "harness.ranks import node" in words and folder.name == "1" else []
    return nodes


def fail(info: dict[str, Any], rank: int) -> None:
    if info["rank"] == rank:
        raise ValueError(f"planted on rank {rank}")
    dist.barrier()


def fail_everywhere(info: dict[str, Any], _: None) -> None:
    raise ValueError(f"planted on all, {info['rank']}")


def stuck(info: dict[str, Any], rank: int) -> None:
    while info["rank"] == rank:
        pass


def crash(info: dict[str, Any], rank: int) -> None:
    if info["rank"] == rank:
        os.abort()
    dist.barrier()


def compile_on(info: dict[str, Any], order: dict[str, Any]) -> int:
    """Rank ``order["rank"]`` compiles for some seconds, and the ranks of the other node wait for it."""
    if info["rank"] == order["rank"]:
        with compiling.compiling():
            time.sleep(order["seconds"])
    dist.barrier()
    return int(info["rank"])
