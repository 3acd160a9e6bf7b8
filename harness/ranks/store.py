"""The file of a torch.distributed.FileStore: only this user can open it, and it is removed with the group."""

from __future__ import annotations

import os

_SHARED_MEMORY = "/dev/shm"


def path(name: str, run_id: str) -> str:
    """Create an empty file for this process and its children, and return its path.

    It is a file in memory that this process keeps open, and that disappears with this process; its path is in /proc,
    where the kernel allows access only to the same user. If /proc cannot be used for that, it is a file in shared
    memory that only this user can open, with ``run_id`` in its name: the keeper removes those.
    """
    descriptor = os.memfd_create(f"iris-harness-{name}")
    os.fchmod(descriptor, 0o600)
    in_memory = f"/proc/{os.getpid()}/fd/{descriptor}"
    if _can_be_opened(in_memory):
        return in_memory
    os.close(descriptor)
    shared = os.path.join(_SHARED_MEMORY, f"{run_id}-{name}")
    os.close(os.open(shared, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    return shared


def _can_be_opened(file: str) -> bool:
    try:
        os.close(os.open(file, os.O_RDWR))
    except OSError:
        return False
    return True
