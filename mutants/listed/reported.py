"""Defects that users of such libraries had, each planted in the bundled library in the place that corresponds to it.

``source`` of each is the public report. What a report leaves open is stated next to the defect.
"""

from __future__ import annotations

from mutants.planting import Defect

MOVE, LOCKS, AMD = "kernels/move.py", "device/locks.py", "device/targets/amd.py"
MOVING = "test_all_gather or test_all_to_all"
"""Collectives that the kernel ``move`` does; the first of them pushes to every member."""


def reported_defects() -> list[Defect]:
    """Return the defects, named by their reports."""
    return [
        # An all-reduce hung or gave wrong sums at times: the lock was published with the scope of one GPU. The contract
        # of the compiled code is the nearest test.
        Defect(
            "a lock is released at the scope of one GPU",
            LOCKS,
            "    publish()\n    poke(lock, 0)",
            '    tl.debug_barrier()\n    tl.atomic_xchg(lock, 0, sem="release", scope="gpu")',
            "def release",
            "test_contract",
            source="ROCm/iris#462",
        ),
        # The caller overwrites its input at once, while a peer still reads it.
        Defect(
            "a collective returns before its peers have read",
            MOVE,
            "    group.wait(pid, turn + 1)",
            "    pass",
            "def move(",
            "queued",
            source="ROCm/aiter#4082",
        ),
        # Three faults in one: the signal at the end released nothing, the acquire had the scope of one GPU, and only
        # the wavefront that polls acquired. The first two are planted one by one.
        Defect(
            "the synchronisation at the end is relaxed",
            AMD,
            "    publish()\n",
            "    tl.debug_barrier()\n",
            "def signal_turn",
            MOVING,
            source="ROCm/aiter#2890",
        ),
        Defect(
            "the acquire has the scope of one GPU",
            AMD,
            "buffer_inv sc0 sc1",
            "buffer_inv sc1",
            "def observe",
            f"{MOVING} or test_all_reduce or test_reduce_scatter",
            source="ROCm/aiter#2890",
        ),
        # Zeros in the output of an all-gather by puts on four GPUs, never with loads. The report does not name the
        # cause; planted is a missing wait for the others' puts, from four members on.
        Defect(
            "puts of four ranks are not waited for",
            MOVE,
            "    group.wait(pid, turn + 1)",
            "    if SIZE < 4:\n        group.wait(pid, turn + 1)",
            "def move(",
            MOVING,
            source="ROCm/aiter#4856",
            ranks=4,
        ),
        # Right on gfx90a, wrong on gfx942. The report gives no cause; planted is a difference of that kind between the
        # two: gfx90a's buffer_wbl2 has no scope bits, and without them gfx942 writes nothing back.
        Defect(
            "the write-back of gfx90a",
            AMD,
            "buffer_wbl2 sc0 sc1",
            "buffer_wbl2",
            "def publish",
            MOVING,
            source="zjin-lcf/HeCBench#292",
        ),
    ]
