"""What kernels record while they run, and its export as a Perfetto trace."""

from .events import EVENTS, TraceEvent, event_name
from .tracing import Tracing

__all__ = ["EVENTS", "TraceEvent", "Tracing", "event_name"]
