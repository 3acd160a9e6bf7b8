"""Benchmarks of collectives: planned, timed in interleaved rounds, checked in every timed cell, written and drawn.

``ops``         what can be measured: one small class each
``plan``        the request: sizes, compute units, backends, cells, memory
``run``         the loop over sizes, rounds and cells, on a rank group whose ranks run ``fixtures.bench``
``results``     what came of it, and its statistics
``writing``     JSON and CSV; ``plots``: PNG; ``showing``: progress and the table at the end

This half runs in the controller and imports neither torch nor a GPU library.
"""
