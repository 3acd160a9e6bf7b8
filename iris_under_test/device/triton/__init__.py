"""Device functions for Triton kernels."""

from .address import translate

__all__ = ["translate"]
