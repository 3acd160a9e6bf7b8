"""Lists of the groups that a complete run has: every difference between a run and its list is a sentence."""

import dataclasses

import pytest

from harness.errors import UsageError
from harness.evidence import Evidence, PlannedGroup
from harness.evidence.mustpass import Hardware, MustPass, Part, parse_list, to_text
from tests.evidence import samples

PROFILE = Hardware("rocm", "gfx942", (8, 4), 8, ("MI300X", "MI325X"))
LIST = MustPass(
    "1.0", "certify", 7,
    {"mi300x": PROFILE, "other": Hardware("cuda", "sm_90", (2,), 0, ())},
    (
        Part(("mi300x", "other"), ("published", "extended"), ("A[1]", "A[2]", "B[1]"), {"N": "no graphs"}),
        Part(("mi300x",), ("extended",), ("C[1]",), {}),
        Part(("other",), ("published",), ("D[1]",), {"O": "one GPU"}),
    ),
)  # fmt: skip


def run(**changes):
    fields = {
        "profile": "mi300x", "level": "certify", "device": "rocm", "arch": "gfx942", "ranks": (8, 4), "seed": 7,
        "ranks_per_gpu": 1, "mode": "fast",
    }  # fmt: skip
    return samples.run(**{**fields, **changes})


def evidence(*groups, runs=None, **fields):
    plan = {name: PlannedGroup(name, name.partition("[")[0], "n") for name in groups or ("A[1]", "A[2]", "B[1]")}
    values = {"api": "published", "not_applicable": {"N": "no graphs"}, **fields}
    return Evidence(runs=[run()] if runs is None else runs, plan=plan, **values)


def problems(content, listed=LIST):
    return list(listed.problems(content))


def test_a_list_has_the_groups_of_each_profile_and_api():
    assert LIST.groups("mi300x", "published") == {"A[1]", "A[2]", "B[1]"}
    assert LIST.groups("mi300x", "extended") == {"A[1]", "A[2]", "B[1]", "C[1]"}
    assert LIST.groups("other", "published") == {"A[1]", "A[2]", "B[1]", "D[1]"}
    assert LIST.not_applicable("mi300x", "extended") == {"N": "no graphs"}
    assert LIST.not_applicable("other", "published") == {"N": "no graphs", "O": "one GPU"}
    assert LIST.groups("gone", "published") == frozenset()


def test_a_run_with_everything_has_no_problem():
    assert problems(evidence()) == []
    assert problems(evidence("A[1]", "A[2]", "B[1]", "C[1]", api="extended")) == []
    assert problems(evidence(runs=[])) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"device": "cuda"}, "device cuda, and level certify on mi300x has rocm"),
        ({"arch": "gfx950"}, "arch gfx950, and level certify on mi300x has gfx942"),
        ({"ranks": (8,)}, "ranks 8, and level certify on mi300x has 8,4"),
        ({"ranks_per_gpu": 2}, "ranks_per_gpu 2, and level certify on mi300x has 1"),
        ({"mode": "weak"}, "mode weak, and level certify on mi300x has fast"),
        ({"seed": 8}, "seed 8, and level certify on mi300x has 7"),
    ],
)
def test_what_a_run_was_requested_with_is_compared(change, problem):
    assert problems(evidence(runs=[run(**change)])) == [f"the run is recorded with {problem}"]


def test_a_list_without_a_seed_is_for_any():
    assert problems(evidence(runs=[run(seed=9)]), dataclasses.replace(LIST, seed=None)) == []


@pytest.mark.parametrize("change", [{"level": "gate"}, {"profile": "gone"}])
def test_a_run_of_another_level_or_profile_is_not_compared_further(change):
    [problem] = problems(evidence("X[1]", runs=[run(**change)]))
    assert problem.startswith("the list of level certify has no profile")


def test_groups_that_a_plan_lacks_or_has_besides():
    where = "level certify on mi300x for the API published"
    assert problems(evidence("A[1]", "B[1]")) == [f"the plan lacks groups that {where} has: A[2]"]
    assert problems(evidence("X[1]", "A[1]", "A[2]", "B[1]")) == [
        f"the plan has groups that {where} does not have: X[1]"
    ]
    assert problems(evidence("A[1]", shards={0: {"of": 2}})) == [], "another shard may have them"
    for excused in ({"left_out": {"A[2]": "-k", "B": "-k"}}, {"unsupported": {"A[2]": "needs a", "B": "needs b"}}):
        assert problems(evidence("A[1]", **excused)) == []


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, " and 1 more")])
def test_few_groups_are_named_and_more_are_counted(count, more):
    [problem] = problems(evidence("A[1]", "A[2]", "B[1]", *(f"X[{number}]" for number in range(count))))
    assert problem.endswith(f"does not have: X[0], X[1], X[2]{more}")


def test_what_is_not_applicable_agrees_with_the_list():
    where = "level certify on mi300x for the API published"
    assert problems(evidence(not_applicable={})) == [
        f"the plan does not call requirements not applicable, as {where} does: N"
    ]
    assert problems(evidence(not_applicable={}, left_out={"N": "-k"})) == []
    assert problems(evidence(not_applicable={"N": "no graphs", "P": "why"})) == [
        f"the plan calls P not applicable (why), and {where} has it"
    ]
    assert problems(evidence(not_applicable={"N": "other"})) == [
        f"the plan calls N not applicable for the reason 'other', and {where} for the reason 'no graphs'"
    ]


def test_a_recorded_gpu_is_one_of_the_models():
    def recorded(*names):
        gpus = {f"GPU-{number}": {"name": name} for number, name in enumerate(names)}
        return [dataclasses.replace(samples.hardware(), gpus=gpus)]

    assert problems(evidence(hardware=recorded("AMD Instinct MI300X", "AMD Instinct MI325X OAM", None))) == []
    assert problems(evidence(hardware=recorded("AMD Instinct MI300X", "NVIDIA H200"))) == [
        "the run is for the profile mi300x, and a recorded GPU is NVIDIA H200"
    ]


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_a_list_is_read_as_it_was_written(seed):
    listed = dataclasses.replace(LIST, seed=seed)
    text = to_text(listed)
    assert parse_list(text.encode(), "list") == listed
    assert to_text(parse_list(text.encode(), "list")) == text
    assert text.startswith("# The groups that a complete run of level certify has.") and text.endswith("\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('suite = "1.0"', "suite = 1"), ('level = "certify"', ""), ("seed = 7", "seed = -1"),
        ("seed = 7", "seed = true"),
        ("ranks = [8, 4]", "ranks = [8, -4]"), ("ranks = [8, 4]", "ranks = 8"), ("gpus = 8", "gpus = 1.5"),
        ("[profiles.", "[profile."), ('"MI300X", ', "3, "), ('N = "no graphs"', "N = 3"),
        ('apis = ["extended"]', "apis = 3"),
    ],
)  # fmt: skip
def test_a_malformed_list_is_refused(old, new):
    text = to_text(LIST)
    assert old in text
    with pytest.raises(UsageError, match="list is not a list of groups as iris-harness mustpass write writes it"):
        parse_list(text.replace(old, new).encode(), "list")


@pytest.mark.parametrize("content", [b"\xff", b"[[part]"])
def test_what_is_not_toml_is_refused(content):
    with pytest.raises(UsageError, match="list is not TOML"):
        parse_list(content, "list")
