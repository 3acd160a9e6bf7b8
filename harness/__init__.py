"""The machinery of the validation harness; independent of Iris.

Its subpackages and modules, the lowest layer first. Each imports only lower ones; ``tests/package/test_layers.py``
checks that:

    errors, printable, seeds, text      no imports of the harness
    files, locks, children, compiling   files, file locks, child processes, time spent on compilation
    machine, runs, kept                 failures of the machine; the folders of runs; results kept on disk
    cases, oracles                      cases as data; the results that torch.distributed computes for them
    isa                                 readers of listings
    emulator, telemetry                 execution without a GPU; sources and the recorder process
    devices                             one file per kind of device, one line each in ``devices.table``
    evidence, casefile                  the record of a run, with the versions that its device depends on
    ranks                               rank groups and leases of GPUs
"""
