"""What kernels record while they run, and its export as a Perfetto trace."""

from .events import TraceEvent
from .tracing import Tracing

__all__ = ["TraceEvent", "Tracing"]
