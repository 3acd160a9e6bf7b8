"""One memory of the library under calls that alternate in all that they can: see ``cases``.

Between calls a workspace holds what the last one left there: slots of another size, flags of more programs, words of
another element type. Other requirements draw any calls one after the other; here all calls of a sequence use the same
memory, and a larger call comes before and after a smaller one.
"""

from conformance.collectives.operations import SMALL_TILE
from conformance.sequences.cases import SequenceCase, step_of
from conformance.sequences.world import run
from fixtures.requirement import requirement

MEMORIES = {
    "counts": ({"op": "all_gather"}, {"op": "all_to_all"}),
    "words": ({"op": "all_gather", "protocol": "ll"}, {"op": "all_to_all", "protocol": "ll"}),
    "ring": ({"op": "all_reduce", "variant": "ring"},) * 2,
    "spinlock": ({"op": "all_reduce", "variant": "spinlock"},) * 2,
    "two_shot_push": ({"op": "all_reduce", "variant": "two_shot_push"},) * 2,
    "variants": ({"op": "all_reduce", "variant": "ring"}, {"op": "all_reduce", "variant": "two_shot_push"}),
}
"""Calls that share each memory: the counts of turns, the slots of words with flags, the workspaces. In the
last one the variants have, or share, workspaces of their own."""

LARGE, SMALL = {"m": 20, "n": 135}, {"m": 1, "n": 3}
"""Sizes that 16 does not divide, so that one kernel serves both."""
FEW, MANY = {"comm_sms": 1}, {"comm_sms": 5}
"""The flags of one program take 16 bytes or less, and those of five take more."""
WAVES = {"block_m": 4, "block_n": 128, "warps": 4, "dtype": "fp16"}
PLAIN = {"dtype": "fp32", "warps": 2}
PROGRAMS = 300
"""More than FEW and MANY, with little memory for each."""
LATE_MS = 10


def cases(ranks, memory):
    """Return sequences whose calls alternate in size, programs, tile, wavefronts, element type, group and op.

    More programs follow fewer ones, with less memory for each, in memory that no call has used before, and in memory
    that a large call has filled. One rank is late in each call, so that others first see what the last call left there.
    A ring also has a call of hundreds of programs, before one of a single program.
    """
    one, other = MEMORIES[memory]
    group = {"group": "stride"} if ranks > 1 else {}
    # The members of an all_reduce divide the tiles: each has one for every program.
    large = {**LARGE, "m": 19 * ranks - 1} if one["op"] == "all_reduce" else LARGE
    calls = (
        {**other, **WAVES, **SMALL, **FEW}, {**one, **PLAIN, **large, **MANY},
        {**one, **PLAIN, **large, **FEW}, {**other, **WAVES, **large, **MANY},
        {**one, **PLAIN, **SMALL, **FEW}, {**one, **PLAIN, **group, **large, **MANY},
        {**other, **WAVES, **large, **FEW}, {**one, **PLAIN, **SMALL, **MANY},
    )  # fmt: skip
    steps = [
        step_of("collective", instance=0, async_op=True, skewed=place % ranks, skew_ms=LATE_MS, **call)
        for place, call in enumerate(calls)
    ]
    sequences = [SequenceCase(tuple(steps)), SequenceCase(tuple(steps[::-1]))]
    if memory == "ring":
        # With a kernel of CCL-NARROW-001. Each program has a tile for every member, the last one ragged.
        count = PROGRAMS * ranks * SMALL_TILE["block_m"] * SMALL_TILE["block_n"] - 1
        many = {**SMALL_TILE, "dtype": "uint8", "reduce": "max", "in_place": True, "m": 1, "n": count}
        calls = {**one, **many, "comm_sms": PROGRAMS}, {**one, **PLAIN, **SMALL, **FEW}
        queued = [step_of("collective", instance=0, async_op=True, **call) for call in calls]
        sequences.append(SequenceCase(tuple(queued)))
    return sequences


@requirement("SEQUENCE-ALTERNATE-001", cases=cases, ranks=2, race=False, memory=tuple(MEMORIES))
def test_alternating(check, case):
    check(run, case)
