"""``import iris_under_test.experimental.iris_gluon as iris_gl``: the names that published Gluon programs use."""

from ..device.gluon import IrisDeviceCtx
from ..host.iris import Iris, iris

__all__ = ["Iris", "IrisDeviceCtx", "iris"]
