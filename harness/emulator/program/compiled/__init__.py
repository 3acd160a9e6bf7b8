"""Translates programs to machine code, from the same op functions that the interpreter executes.

An op is a small function on arrays (``operations.table``). The interpreter calls it with NumPy arrays that hold the
registers of all wavefronts; to compile, it is called with symbolic arrays that emit LLVM IR. So an instruction
has one definition.

``values``, ``ufuncs``, ``functions``: symbolic arrays and the lowering of NumPy operations to LLVM. ``registers``:
symbolic wavefronts. ``forms``: the machine code of an instruction, whatever its registers. ``translation``: the code of
a program. ``objects``: machine code, and its cache on disk.
"""
