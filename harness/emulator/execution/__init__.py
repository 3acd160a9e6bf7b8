"""Execution of one launch: allocations, work-groups, calls to the host, counters, time."""
