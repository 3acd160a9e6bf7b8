"""Old import paths, so that published programs run unchanged."""

from iris_under_test.device.gluon import GluonDeviceTracing, IrisDeviceCtx

from . import iris_gluon

__all__ = ["GluonDeviceTracing", "IrisDeviceCtx", "iris_gluon"]
