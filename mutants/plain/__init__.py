"""A plain test suite, for comparison: each op once with constant data, whole blocks and one order of events.

It is written as many libraries test such ops: inputs are constant on each rank, masks are full, only the output is
compared, and each call is followed by a barrier. ``iris-harness mutants`` runs it on the same mutants.
"""
