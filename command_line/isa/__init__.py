"""Contracts and baselines of compiled kernels: ``iris-harness isa``."""
