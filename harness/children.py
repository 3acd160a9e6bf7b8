"""Helpers for starting processes: memory files for their output, and descriptions of how they ended."""

from __future__ import annotations

import fcntl
import os
import signal


def memory_file(name: str) -> int:
    """Create a file in memory, opened for appending, so that writers in several processes do not overwrite each
    other."""
    descriptor = os.memfd_create(f"iris-harness-{name}")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor


def describe_exit(status: int) -> str:
    """Return a wait status in words: ``signal 6 (SIGABRT)``, ``exit status 3``."""
    if os.WIFSIGNALED(status):
        return describe_signal(os.WTERMSIG(status))
    return f"exit status {os.WEXITSTATUS(status)}"


def describe_signal(number: int) -> str:
    """Return a signal in words: ``signal 11 (SIGSEGV)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
