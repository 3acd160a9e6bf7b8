"""Device API for Gluon kernels."""

from .context import IrisDeviceCtx
from .tracing import GluonDeviceTracing

__all__ = ["GluonDeviceTracing", "IrisDeviceCtx"]
