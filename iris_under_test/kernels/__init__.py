"""Kernels that the library launches itself: collectives, messages, matrix products fused with a collective.

One file per subject. A kernel that exists in both languages is written once:

* Its *body* is a ``@triton.jit`` function. It uses only names of ``triton.language`` that Gluon has too, and takes
  the one difference between the languages as a parameter: a block of indices (``lanes``, ``words``), whose layout
  Gluon's kernel chooses and Triton's leaves to the compiler. Triton compiles a function in the language of the
  kernel that calls it.
* Values that belong to one object are one parameter of the body: ``Group``, ``Matrix`` and ``Tiling`` of
  ``arguments``, ``Plan`` of ``move``.
* Its two *entry points* stand below it: ``NAME_triton`` and ``NAME_gluon`` create that block and call the body. They
  take plain scalars, which they group for the body, since Triton specialises a kernel on its own parameters (a stride
  that is 1, a size that 16 divides). The Gluon one has the layout as additional last parameters (see
  ``ccl.kernel_launch.lane_layout``).

Functions that several kernels share, and kernels that exist only in Triton, are ``@triton.jit`` functions too; none of
them has a second version for Gluon.

``kernels`` imports only ``device`` from this library. Shapes, checks and launches belong to the host: ``ccl`` and
``ops``. Functions for users' kernels belong to ``device``.
"""
