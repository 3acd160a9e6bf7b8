"""Names that published Gluon programs import: ``import iris_under_test.experimental.iris_gluon as iris_gl``.

Each is the same object as one with a current name; docs/names.md lists them.
"""

from iris_under_test.device.gluon import GluonDeviceTracing, IrisDeviceCtx
from iris_under_test.host.iris import Iris, iris
from iris_under_test.host.tracing import TraceEvent

__all__ = ["GluonDeviceTracing", "Iris", "IrisDeviceCtx", "IrisGluon", "TraceEvent", "iris"]

# The host class for Gluon, from the time when each language had its own.
IrisGluon = Iris
