"""The fused kernels in Triton."""
