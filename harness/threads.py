"""Threads of the harness in a process that may also run kernels.

A kernel that polls memory which nothing can change never ends. The emulator reports that only if no other thread could
change the memory, and it need not count the threads that are started here: they never touch the memory of kernels.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

_own: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(target: Callable[..., None], arguments: tuple[Any, ...], name: str) -> threading.Thread:
    """Start and return a daemon thread of the harness."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    _own.add(thread)
    thread.start()
    return thread


def of_the_program() -> int:
    """Return how many threads run that were not started here, the main thread among them."""
    own = set(_own)
    return sum(thread not in own for thread in threading.enumerate())
