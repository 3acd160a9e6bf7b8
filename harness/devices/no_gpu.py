"""Messages of PyTorch to a program that requires a GPU where none is visible."""

from __future__ import annotations

TEXTS = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver", "No HIP GPUs", "No CUDA GPUs")
"""Parts of the messages of PyTorch 2.6 to 2.13, in builds for the CPU, for CUDA and for ROCm."""
