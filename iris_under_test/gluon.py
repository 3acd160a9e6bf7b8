"""The Gluon device side under the path that users import: ``from iris_under_test.gluon import IrisDeviceCtx``."""

from .device.gluon import GluonDeviceTracing, IrisDeviceCtx

__all__ = ["GluonDeviceTracing", "IrisDeviceCtx"]
