"""A library with the published Iris API and nothing else, made of ``iris_under_test``.

It has no ``close``, no ``free``, no preambles of fused products, no collectives with a root, no messages, no handles
and no low-latency protocol. ``--implementation tests.published_iris`` certifies it.
"""

from tests.published_iris.package import build

build(__name__)
