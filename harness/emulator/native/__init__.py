"""Functions compiled by numba: accesses to memory, LDS and scratch, atomics, matrix products.

No other package touches real addresses.
"""

from harness.emulator import stamps

stamps.use()
