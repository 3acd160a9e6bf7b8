"""``import iris_under_test.experimental.iris_gluon as iris_gl``: the names that published Gluon programs use."""

from iris_under_test.device.gluon import IrisDeviceCtx
from iris_under_test.host.iris import Iris, iris

__all__ = ["Iris", "IrisDeviceCtx", "iris"]
