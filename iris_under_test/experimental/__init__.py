"""Old import paths, kept so that published programs run unchanged."""

from . import iris_gluon

__all__ = ["iris_gluon"]
