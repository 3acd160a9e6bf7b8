"""Collectives, device functions and signals of a library that is reached through an adapter."""

ONE_PROCESS = "it chooses schedules and counts polls in the process that runs the kernels"
