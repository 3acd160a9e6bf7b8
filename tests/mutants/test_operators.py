"""The operators: each changes a small text as described, the result still parses, and ids are stable and unique."""

from __future__ import annotations

import ast

import pytest

from mutants import listing, planting
from mutants.generated import harness, operators
from mutants.listed import REPORTED
from mutants.mutant import HARNESS, LISTED, SOURCE
from mutants.mutant import REPORTED as REPORTED_KIND
from mutants.selection import stages_of

KERNEL = """
@triton.jit
def move(group, source, target, bases, from_rank, to_rank, in_m, in_n, value, flag, turn, n):
    pid = tl.program_id(0)
    offsets = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < n) & (pid > 0)
    remote = translate(source, bases, from_rank, to_rank)
    data = tl.load(remote + offsets, mask=mask, cache_modifier=".cv")
    total = combined(widened(data), value.to(tl.float32))
    place(target, in_m, in_n)
    tl.store(target + offsets, total, mask=mask)
    publish()
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")
    group.wait(pid, turn)
    turn += 1
    tl.inline_asm_elementwise("buffer_wbl2 sc0 sc1\\ns_waitcnt vmcnt(0)\\nv_mov_b32 $0, 0", "=v", [], tl.int32)
    return triton.cdiv(n, BLOCK), source.stride(0)
"""

EXPECTED = {
    "rank-swapped": "translate(source, bases, to_rank, from_rank)",
    "rank-next": "translate(source, bases, from_rank + 1, to_rank)",
    "mask-dropped": "mask=None, cache_modifier",
    "mask-inverted": "mask = ~((offsets < n) & (pid > 0))",
    "mask-left": "mask = offsets < n\n",
    "mask-right": "mask = pid > 0\n",
    "offset-next": "tl.load(remote + offsets + 1, ",
    "offset-dropped": "tl.load(remote, ",
    "scope-smaller": 'scope="gpu"',
    "scope-bits": '"buffer_wbl2 sc1\\ns_waitcnt',
    "order-relaxed": 'sem="relaxed"',
    "fence-removed": "    pass\n    tl.atomic_xchg",
    "fence-written-back": '("s_waitcnt vmcnt(0)',
    "wait-removed": "    pass\n    turn += 1",
    "wait-less": "group.wait(pid, turn - 1)",
    "wait-assembly": "sc0 sc1\\nv_mov_b32",
    "epoch-kept": "group.wait(pid, turn)\n    pass\n",
    "epoch-skipped": "turn += 1 + 1",
    "dtype-int32": "pid.to(tl.int32)",
    "dtype-narrow": "combined(data, value",
    "tail-cut": "((n) // (BLOCK))",
    "tail-beyond": "offsets <= n",
    "stride-swapped": "place(target, in_n, in_m)",
    "stride-other": "source.stride(1)",
    "cache-dropped": "mask=mask)\n    total",
}


def changed(mutants, text):
    return {operator: [one.applied(text) for one in mutants if one.operator == operator] for operator in EXPECTED}


@pytest.mark.parametrize("operator", EXPECTED)
def test_an_operator_makes_its_change(operator):
    texts = changed(operators.mutants_in("kernels/example.py", KERNEL), KERNEL)[operator]
    assert any(EXPECTED[operator] in text for text in texts), texts
    for text in texts:
        ast.parse(text)
        assert text != KERNEL


@pytest.mark.parametrize(
    "line",
    [
        "stream.synchronize()", "super().synchronize()", "self._done.synchronize()", "self._work.wait()",
        "self._platform.synchronize(stream)", "torch.cuda.synchronize()",
        'old = tl.atomic_add(cell, 1, sem="relaxed", scope="gpu")', "self._platform.device(rank)",
        "platform.make_current(self.cur_rank)",
    ],
)  # fmt: skip
def test_no_mutant_is_made_that_an_emulated_run_cannot_show(line):
    assert ordering(f"def run(stream, cell):\n    {line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "work.synchronize()",
        "group.wait()",
        "platform.device_id(rank)",
        'old = tl.atomic_add(cell, 1, sem="acquire", scope="gpu")',
    ],
)
def test_a_similar_line_has_a_mutant(line):
    text = f"def run(stream, cell):\n    {line}\n"
    [mutant] = ordering(text)
    assert mutant.applied(text) != text


def test_no_mutant_is_made_of_functions_that_an_emulated_run_does_not_execute():
    for file, functions in operators.ON_GPUS.items():
        made = {mutant.function.split(".")[0] for mutant in operators.mutants_in(file, planting.original(file))}
        assert made and not made & set(functions)
        assert all(
            f"def {name}(" in (text := planting.original(file)) or f"class {name}:" in text for name in functions
        )


def ordering(text):
    """Return the mutants of a text that are about ranks, scopes, fences and waits."""
    made = operators.mutants_in("ccl/example.py", text)
    return [each for each in made if each.operator.startswith(("rank", "fence", "wait", "scope"))]


def test_an_id_names_the_place():
    [present] = [one for one in operators.mutants_in("kernels/example.py", KERNEL) if one.operator == "wait-removed"]
    assert present.id == "wait-removed:kernels/example.py:14:5" and present.function == "move"
    assert present.change() == "group.wait(pid, turn) -> pass"


def test_every_operator_has_places_in_the_library():
    present = {mutant.operator for mutant in listing.all_of(SOURCE)}
    assert set(EXPECTED) <= present | {"fence-invalidated"}, set(EXPECTED) - present


@pytest.mark.parametrize("kind", [LISTED, REPORTED_KIND, SOURCE, HARNESS])
def test_all_mutants_apply_have_ids_and_tests(kind):
    mutants = listing.all_of(kind)
    assert len({mutant.id for mutant in mutants}) == len(mutants) > 0
    for mutant in mutants:
        root = planting.ROOT if kind == HARNESS else planting.SOURCE
        assert mutant.applied((root / mutant.file).read_text(encoding="utf-8"))
        for stage in stages_of(mutant):
            assert all((planting.ROOT / target).exists() for target in stage.targets), stage
    assert mutants == listing.all_of(kind), "the same each time"


def test_every_reported_defect_names_its_report():
    assert {defect.source for defect in REPORTED} == {
        "ROCm/iris#462", "ROCm/aiter#4082", "ROCm/aiter#2890", "ROCm/aiter#4856", "zjin-lcf/HeCBench#292",
    }  # fmt: skip


def test_a_place_that_has_changed_is_an_error():
    mutant = operators.mutants_in("kernels/example.py", KERNEL)[0]
    with pytest.raises(LookupError, match="no longer holds"):
        mutant.applied("\n" + KERNEL)


def test_a_sample_takes_turns_among_operators_and_follows_its_seed():
    mutants = listing.all_of(SOURCE)
    chosen = listing.sample(mutants, 20, 0)
    assert chosen == listing.sample(mutants, 20, 0) != listing.sample(mutants, 20, 1)
    assert len({mutant.operator for mutant in chosen}) == 20
    assert listing.sample(mutants, None, 0) == mutants


HARNESS_CODE = """
def compare(got, wanted):
    if got is None or len(got) != 3:
        raise ValueError(got)
    note(got)
    return not got == wanted, True
"""


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("comparison-opposite", "got is not None or"),
        ("comparison-opposite", "len(got) == 3"),
        ("condition-or", "if False or len"),
        ("condition-negated", "return got == wanted"),
        ("statement-removed", "        pass\n    note"),
        ("statement-removed", "    pass\n    return"),
        ("number-next", "!= 4"),
        ("boolean-opposite", "wanted, False"),
        ("result-none", "return None"),
    ],
)
def test_an_operator_of_the_harness_makes_its_change(operator, text):
    texts = [m.applied(HARNESS_CODE) for m in harness.mutants_in("a.py", HARNESS_CODE) if m.operator == operator]
    assert any(text in changed for changed in texts), texts
