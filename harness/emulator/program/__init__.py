"""A kernel ready to run: decoded instructions, steps, modes of arithmetic, and runs of steps compiled by LLVM."""
