"""The machine's management library and tools: ``libamd_smi.so`` for the amdsmi package, rocm-smi and others.

The Python package amdsmi is not imitated. It is AMD's own interface to the library, needs nothing but the library, and
``pip install amdsmi`` brings it; a program without it finds no amdsmi, as on a machine whose environment lacks it.
"""

from harness.emulated_machine.smi.library import install

__all__ = ["install"]
