"""The ranks' side of binary mutants: functions that ``session`` calls on every rank of the emulated device.

``env`` is a ``fixtures.worker.Env``. The change lives in the process of the rank, and ends with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mutants.binary.operators import key_of

_seen: dict[str, tuple[str, str]] = {}
"""Kernel name and listing of each kernel launched since the last ``launched``, by key."""


def watch(env: Any, payload: None) -> None:
    """Execute unchanged machine code from now on, and note the kernels that are launched."""
    _seen.clear()  # of a call that failed
    _driver().rewrite = _noted


def launched(env: Any, known: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return the kernels that this rank has launched since the last call: name and listing by key.

    The listing of a kernel whose key is in ``known`` is left out.
    """
    seen = {key: (name, "" if key in known else text) for key, (name, text) in _seen.items()}
    _seen.clear()
    return seen


def change(env: Any, payload: Mapping[str, Any]) -> None:
    """Execute one kernel with a change from now on. ``payload``: the kernel's key, and the line of the instruction
    ``old``, from 1, that becomes ``new``."""
    keys: dict[str, str] = {}
    key, number, old, new = (payload[name] for name in ("key", "line", "old", "new"))

    def changed(kernel: str, listing: str) -> str:
        if listing not in keys:
            keys[listing] = key_of(listing)
        if keys[listing] != key:
            return listing
        lines = listing.splitlines(keepends=True)
        assert old in lines[number - 1]  # sanity check: the key identifies the code
        lines[number - 1] = lines[number - 1].replace(old, new, 1)
        return "".join(lines)

    _driver().rewrite = changed


def renew(env: Any, payload: None) -> None:
    """Replace the rank's instance of the library: memory of the new one holds no data of earlier calls."""
    from conformance.support.instances import release  # it imports torch, which the command starts without

    release(env.iris)
    for name in ("snapshot", "image", "context", "iris"):
        vars(env).pop(name, None)  # a cached property is made again at its next use
    env.prepare()


def leave(env: Any, payload: None) -> None:
    """End this process: the group starts fresh ranks for its next call."""
    os._exit(0)


def _noted(kernel: str, listing: str) -> str:
    _seen[key_of(listing)] = (kernel, listing)
    return listing


def _driver() -> Any:
    from triton.runtime import driver

    return driver.active
