"""Gluon kernels of the collectives."""
