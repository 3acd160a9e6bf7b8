"""The Triton driver: loads kernels, takes launches, schedules wavefronts, surveys the opcodes of kernels."""
