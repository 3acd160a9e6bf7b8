"""Triton kernels of the collectives."""
