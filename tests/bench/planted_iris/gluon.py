from iris_under_test.gluon import IrisDeviceCtx

__all__ = ["IrisDeviceCtx"]
