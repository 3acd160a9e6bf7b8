"""The HIP runtime of the emulated machine: a ``libamdhip64.so`` over shared memory.

native      its C source
build       compiles it on first use
loading     makes this process and its children find it
memory      allocation and the regions that kernels may access
calls       what each function does: exact, approximate, refused
"""

from harness.emulated_machine.hip.loading import install, library

__all__ = ["install", "library"]
