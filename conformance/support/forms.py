"""The forms in which users call the operations inside a kernel."""

FORMS = ("gluon", "context", "function")
"""A Gluon kernel with ``IrisDeviceCtx``, a Triton kernel with ``DeviceContext``, or a Triton kernel with functions."""
