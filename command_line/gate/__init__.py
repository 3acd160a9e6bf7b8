"""The judgement before a merge: what a change can affect, figures that got worse, and reports where developers look.

``units`` and ``references`` read the library's source; ``reach`` is the map of what each requirement reaches;
``changes`` reads git; ``choose`` decides what runs first; ``kernels``, ``compiling`` and ``figures`` compare base and
head; ``timing`` takes times on a GPU, ``times`` reads and ``statistics`` compares them; ``judge`` and ``publish``
conclude.
"""
