"""Measuring: ``do_bench`` times one function."""

from .timing import do_bench

__all__ = ["do_bench"]
