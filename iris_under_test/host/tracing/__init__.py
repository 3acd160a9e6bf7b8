"""Events that kernels record while they run, and their export as a Perfetto trace."""

from .events import TraceEvent
from .tracing import Tracing

__all__ = ["TraceEvent", "Tracing"]
