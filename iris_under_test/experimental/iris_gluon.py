"""``import iris_under_test.experimental.iris_gluon as iris_gl``: the names that published Gluon programs use.

Each is the object that has another name now; docs/names.md is the table of them.
"""

from iris_under_test.device.gluon import GluonDeviceTracing, IrisDeviceCtx
from iris_under_test.host.iris import Iris, iris
from iris_under_test.host.tracing import TraceEvent

__all__ = ["GluonDeviceTracing", "Iris", "IrisDeviceCtx", "IrisGluon", "TraceEvent", "iris"]

# When each language had a host class of its own, this was Gluon's.
IrisGluon = Iris
