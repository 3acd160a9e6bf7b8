"""Bounded waits: in a debug build, a kernel whose wait never ends stops with a message.

``device.debug`` describes the two switches of a debug build. In other builds a wait has no bound, and its code has no
counter.
"""

import os

import triton
import triton.language as tl

__all__ = ["IRIS_DEBUG", "POLL_LIMIT", "bound", "compiled_with_debug"]

IRIS_DEBUG = tl.constexpr(os.environ.get("IRIS_DEBUG", "").lower() in ("1", "true", "yes"))

POLL_LIMIT = tl.constexpr(int(os.environ.get("IRIS_POLL_LIMIT", "1000000000")))
"""Number of polls after which a debug build stops a waiting kernel; less than 2^31."""


@triton.jit
def bound(polls, awaited: tl.constexpr):
    """In a debug build, stop the kernel if ``polls`` (a scalar or a block) has reached POLL_LIMIT.

    ``awaited``: the event that did not happen, as text for the message.
    """
    if IRIS_DEBUG or compiled_with_debug():
        _assert(polls < POLL_LIMIT, awaited)


@tl.core.builtin
def compiled_with_debug(_semantic=None):
    """Return whether the kernel is compiled with ``debug=True``."""
    return tl.constexpr(bool(_semantic.builder.options.debug))


@tl.core.builtin
def _assert(condition, awaited, _semantic=None):
    """``tl.device_assert`` that is active whatever the kernel's options are."""
    _semantic.builder.create_assert(condition.handle, f"iris: timed out waiting: {awaited.value}")
