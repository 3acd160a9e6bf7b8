"""Functions that the tests of companions run on ranks and on their companions."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

HERE = __name__


class Pair:
    """The environment of a rank with its companion."""

    def __init__(self, info: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self.rank = info["rank"]
        self.companion = info["companion"]
        self.companion.set_up(f"{HERE}:{options['companion_setup']}", dict(options))

    def describe(self) -> str:
        return str(self.companion.describe())

    def close(self) -> None:
        self.companion.close()


class Described:
    """The environment of a companion."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def describe(self) -> str:
        return f"companion {self.rank} waits for the tide"


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Pair:
    return Pair(info, options)


def companion_setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Described:
    return Described(info["rank"])


def failing_setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    raise ArithmeticError(f"no set-up in the companion of rank {info['rank']}")


def broken_setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    from harness.errors import HarnessError

    raise HarnessError("the harness is wrong")


def both(pair: Pair, payload: Any) -> list[Any]:
    """Return process id, rank and the sum over all ranks of ``payload``, of the rank and of its companion."""
    return [identity(pair, payload), pair.companion.call(f"{HERE}:identity", 10 * payload)]


def identity(environment: Any, payload: int) -> list[int]:
    total = torch.tensor([payload])
    dist.all_reduce(total)
    return [os.getpid(), dist.get_rank(), int(total)]


def in_companion(pair: Pair, payload: list[Any]) -> Any:
    """Call a function on the companion of the ranks in ``payload[1]``."""
    name, ranks = payload
    return pair.companion.call(f"{HERE}:{name}", pair.rank) if pair.rank in ranks else pair.companion.pid


def raises(environment: Described, rank: int) -> None:
    raise ArithmeticError(f"companion {rank} cannot count")


def crashes(environment: Described, rank: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(environment: Described, rank: int) -> None:
    os._exit(7)


def waits_for_ever(environment: Described, rank: int) -> None:
    time.sleep(10_000)


def sends_nonsense(environment: Described, rank: int) -> Any:
    return object()


def rank_exits(pair: Pair, payload: Any) -> int:
    """Return the companion's process id on rank 0; end rank 1, whose companion then has no rank."""
    if pair.rank == 1:
        os._exit(0)
    return int(pair.companion.pid)


def closes(pair: Pair, payload: Any) -> int:
    """End the companion in order, twice."""
    pair.companion.close()
    pair.companion.close()
    return int(pair.companion.pid)
