"""Compiles ALU instructions to machine code, from the same op functions that the interpreter executes.

    compile_runs(program)

An op is a small function on arrays (``ops.table``). The interpreter calls it with NumPy arrays that hold the registers
of all wavefronts; to compile, it is called with symbolic arrays that emit LLVM IR. There is no second definition of an
instruction.

``values``, ``ufuncs``, ``functions``: symbolic arrays and the lowering of NumPy operations to LLVM. ``registers``:
symbolic wavefronts. ``runs``: choice of what to compile, and when. ``objects``: machine code, and its cache on disk.
"""

from harness.emulator.program.compiled.runs import Run, compile_runs

__all__ = ["Run", "compile_runs"]
