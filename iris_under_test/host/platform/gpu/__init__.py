"""The base of CUDA's and ROCm's platforms."""
