"""The ``tracing`` field of ``IrisDeviceCtx``: inert until device tracing is built.

Only the compile-time switch exists. ``record_event_start`` and ``record_event_end`` are absent, not empty, so that a
kernel that wants to trace fails to compile instead of tracing nothing.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

__all__ = ["GluonDeviceTracing"]


@aggregate
class GluonDeviceTracing:
    """Whether device tracing is compiled in; always False for now."""

    enabled: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, enabled):
        self.enabled = gl.constexpr(enabled)
