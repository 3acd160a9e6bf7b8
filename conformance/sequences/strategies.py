"""Hypothesis strategies for sequences. They shrink towards no step at all.

A sequence is plain data, since it is sent to the ranks and recorded before it runs; so the state machines of
Hypothesis, which draw a step after they have executed the one before, do not apply. Instead a sequence is a list of
codes, and each code becomes a step that is possible in the state of a model: a code whose rule is not possible there
becomes none. A code is independent of the others, so Hypothesis can delete any part of the list, and each list is a
valid sequence.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from hypothesis import strategies as st

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import names, published
from conformance.collectives.strategies import ACCUMULATING, small
from conformance.sequences.cases import SequenceCase, Step, step_of
from conformance.sequences.model import Model
from conformance.sequences.rules import RULES, Pick
from fixtures import judged
from harness.cases import GROUPS

PARTS, PART = 6, 5
"""Maximum of parts of a sequence, and of steps in a part. Hypothesis draws longer sequences as a list of lists than as
one list, and deletes whole parts first when it shrinks one."""

PALETTE = 4
"""Maximum of different kernels of collectives in one sequence: a compile costs as much as several sequences."""

DTYPES = ("int32", "fp16")
ROWS, COLUMNS = 12, 136
"""Limits of a collective's shape; a step may have twice as many rows."""

_CODES = st.lists(st.integers(0, 719), max_size=8)  # 720 has many divisors: every number of options up to 6


def sequences(ranks: int, rules: tuple[str, ...]) -> st.SearchStrategy[SequenceCase]:
    """Draw a sequence of those rules whose capabilities the library offers."""
    offered = [name for name in rules if judged.offers(*RULES[name].needs)]
    calls = st.lists(_calls(ranks), min_size=1, max_size=PALETTE) if "collective" in offered else st.just([])
    # Twice: without a block, half of the other rules are not possible.
    step = st.tuples(st.sampled_from(["allocate", *offered] if "allocate" in offered else offered), _CODES)
    raw = st.lists(st.lists(step, min_size=1, max_size=PART), min_size=1, max_size=PARTS)
    return st.builds(partial(_sequence, ranks), calls, raw)


def _sequence(ranks: int, calls: list[CollectiveCase], raw: list[list[tuple[str, list[int]]]]) -> SequenceCase:
    groups = GROUPS if judged.extended() else ("world", "halves", "stride")
    model = Model(ranks, groups if ranks > 1 else ("world",), tuple(calls))
    steps: list[Step] = []
    for name, codes in chain(*raw):
        arguments = RULES[name].draw(model, Pick(codes))
        if arguments is not None:
            RULES[name].apply(model, **arguments)
            steps.append(step_of(name, **arguments))
            model.turn += 1
    return SequenceCase(tuple(steps))


@st.composite
def _calls(draw: st.DrawFn, ranks: int) -> CollectiveCase:
    """Draw one call of any collective that the library offers, in any variant, with a kernel that other requirements
    compile too."""
    op = draw(st.sampled_from([op for op in names() if judged.offers(f"ccl.{op}")]))
    variant = draw(st.sampled_from(["", *ACCUMULATING])) if op == "all_reduce" else ""
    # An atomic sum of narrow floats may round differently in each order.
    dtypes = DTYPES[:1] if variant == "atomic" else DTYPES
    case = draw(small(ranks, op, variant, dtypes, (ROWS, COLUMNS)))
    return case if judged.extended() else published(case)
