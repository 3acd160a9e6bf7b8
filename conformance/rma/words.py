"""Read or write one int32 with a kernel: on a rank's heap, or at an address that is mapped in this process."""

from __future__ import annotations

from typing import Any

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from fixtures.worker import Env


class Address:
    """A raw int32 pointer as a kernel argument: Triton accepts any object with ``data_ptr`` and ``dtype``."""

    dtype = torch.int32

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def read_word(env: Env, rank: int, start: int) -> int:
    """Load the int32 at byte ``start`` of the part of ``rank``'s symmetric heap that cases use, its arena."""
    return _read(env, env.pointer(start, torch.int32), rank)


def read_address(env: Env, address: int) -> int:
    """Return the int32 at an address that is mapped in this process, by a load without translation."""
    return _read(env, Address(address), env.rank)


def is_peers(env: Env, address: int) -> bool:
    """Return whether the emulated device counts a load from an address, which it makes, as one of a peer's memory.

    Its reports and its modes ``weak`` and ``race`` go by that, so a library must register each memory with its owner.
    """
    env.launched()
    read_address(env, address)
    return any(access.where == "peer" for launch in env.launched() for access in launch.accesses)


def write_address(env: Env, address: int, word: int) -> None:
    """Store an int32 at an address that is mapped in this process, with the same kernel."""
    _load(env, torch.tensor([word], dtype=torch.int32, device=env.device.torch_device), Address(address), env.rank)


def _read(env: Env, pointer: Any, rank: int) -> int:
    seen = torch.zeros(1, dtype=torch.int32, device=env.device.torch_device)
    _load(env, pointer, seen, rank)
    return int(seen[0])


def _load(env: Env, source: Any, target: Any, rank: int) -> None:
    keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)
    launch(env, TRANSFERS["load"], TransferCase(n=1), source, target, keep, rank)
    env.device.synchronize()
