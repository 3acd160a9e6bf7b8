"""A fence, a wait or a scope bit that is taken out of the machine code of an atomic is a difference of its case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.atomics import history
from conformance.atomics.cases import AtomicCase
from fixtures.drawing import Call
from fixtures.implementation import BUNDLED
from fixtures.options import Options
from fixtures.outcome import of_results
from fixtures.rig import rig
from fixtures.worker import run_case
from harness.evidence import Verdict
from harness.ranks import RankGroup
from mutants.binary import ranks as functions

FAULTS = {
    "write-back dropped": (r"buffer_wbl2 sc0 sc1", "s_nop 0", "missing buffer_wbl2 sc0 sc1 before"),
    "its wait dropped": (r"(?<=wbl2 sc0 sc1\n\t)s_waitcnt vmcnt\(0\)", "s_nop 0", "vmcnt(0) after the buffer_wbl2"),
    "invalidation dropped": (r"buffer_inv sc0 sc1", "s_nop 0", "missing buffer_inv sc0 sc1 after"),
    "its wait dropped, too": (r"s_waitcnt vmcnt\(0\)(?=\n\tbuffer_inv)", "s_nop 0", "vmcnt(0) between"),
    "write-back narrowed": (r"buffer_wbl2 sc0 sc1", "buffer_wbl2 sc0", "missing buffer_wbl2 sc0 sc1 before"),
    "invalidation narrowed": (r"buffer_inv sc0 sc1", "buffer_inv sc0", "missing buffer_inv sc0 sc1 after"),
    "atomic narrowed": (r"(?<=off sc0) sc1$|(?<=\d\] sc0) sc1$", "", "sc1 on the atomic (amdgcn)"),
}  # fmt: skip
CASES = {
    "scalar": {"form": "gluon"},
    "tile": {"spt": 1, "warps": 4, "n": 300, "cells": 7, "form": "gluon"},
    "loop": {"op": "xor", "spt": 1, "n": 100, "cells": 7, "form": "function"},
    "two elements": {"spt": 2, "warps": 4, "n": 512, "cells": 64, "form": "context", "targets": ((1,), ())},
}


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    options = Options.checked(
        device=None, arch=None, mode=None, ranks="2", level="ci", implementation_name=BUNDLED, seed="0",
        evidence=None, replay=None, deadline=None,
    )  # fmt: skip
    with rig(options, 2, lambda message: None) as ranks:
        yield ranks.group


def outcome(group: RankGroup, case: AtomicCase) -> Any:
    payload = Call.of(history.run, case, {}).payload()
    return of_results(group.call(f"{run_case.__module__}:{run_case.__name__}", payload))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_a_weakened_order_is_a_difference_of_the_case(group, kind):
    case = AtomicCase(**{"targets": ((1,), (0,)), "sem": "acq_rel", "scope": "sys", **CASES[kind]})
    group.call(f"{functions.__name__}:watch", None)
    group.call(f"{functions.__name__}:launched", ())
    assert outcome(group, case).verdict is Verdict.PASS
    ((key, (_, listing)),) = group.call(f"{functions.__name__}:launched", ())[0].items()
    for name, (old, new, words) in FAULTS.items():
        match = re.search(old, listing, re.MULTILINE)
        assert match, (name, listing)
        change = {"key": key, "line": listing.count("\n", 0, match.start()) + 1, "old": match[0], "new": new}
        group.call(f"{functions.__name__}:change", change)
        wrong = outcome(group, case)
        assert wrong.verdict is Verdict.FAIL and words in wrong.message, (name, wrong)
        assert f"atomic_{case.op} with sem=acq_rel scope=sys" in wrong.message
    group.call(f"{functions.__name__}:watch", None)
    assert outcome(group, case).verdict is Verdict.PASS
