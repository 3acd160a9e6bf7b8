"""Benchmarks of collectives: plan, time in interleaved rounds, check every timed output, write and plot the results.

``ops``         the ops that can be measured: one small class each
``plan``        the request: sizes, compute units, backends, cells, memory
``run``         the loop over sizes, rounds and cells, on a rank group whose ranks run ``command_line.bench.worker``
``results``     raw times, and the statistics computed from them
``writing``     JSON and CSV; ``plots``: PNG; ``display``: progress and the table at the end

Only ``worker`` and ``payload`` run on ranks. The other modules run in the controller, and import neither torch nor a
GPU library.
"""
