"""Plans of nights: what they mean, and each mistake in one line that names its place."""

import pytest

from command_line.main import run as command
from command_line.nightly.plan import read_plan
from harness.errors import UsageError

LEG = """
[[leg]]
name = "gate"
budget = "20m"
"""


def plan_of(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return read_plan(path)


def test_a_leg_with_lists_is_one_leg_for_each_combination(tmp_path):
    plan = plan_of(tmp_path, f'{LEG}\nranks = [2, 4]\nmode = ["fast", "weak:7"]\narch = "gfx950"\nlevel = "ci"\n')
    assert [leg.name for leg in plan.legs] == [
        "gate-ranks2-fast", "gate-ranks2-weak-7", "gate-ranks4-fast", "gate-ranks4-weak-7",
    ]  # fmt: skip
    assert {(leg.request.arch, leg.request.level, leg.budget) for leg in plan.legs} == {("gfx950", "ci", 1200.0)}
    assert [leg.request.ranks for leg in plan.legs] == [(2,), (2,), (4,), (4,)]
    assert plan.history == tmp_path / "history.sqlite" and plan.corpus.folder == tmp_path / "corpus"


def test_a_leg_can_be_limited_to_requirements(tmp_path):
    [leg] = plan_of(tmp_path, f'{LEG}\nrequirements = ["RMA-PUT-001", "ORDER"]\n').legs
    assert leg.requirements[0] == "RMA-PUT-001" and len(leg.requirements) > 2


MISTAKES = {
    'name = "a"\n': "has neither [[leg]] nor [soak]",
    "x = ": "is not TOML",
    f"{LEG}\nbudgt = 1\n": "[[leg]] 1 (gate): unknown key 'budgt': did you mean budget?",
    f"{LEG}\nzzz = 1\n": "[[leg]] 1 (gate): unknown key 'zzz': the keys are name, budget, device",
    f"{LEG}\n[soke]\n": "unknown key 'soke': did you mean soak?",
    f"{LEG}\n[history]\nfiel = 'x'\n": "[history]: unknown key 'fiel': did you mean file?",
    '[[leg]]\nname = "a"\n': "[[leg]] 1 (a) lacks budget",
    '[[leg]]\nname = "a"\nbudget = "20"\n': "[[leg]] 1 (a): budget: expected a time such as 90s, 20m or 2h, got '20'",
    '[[leg]]\nname = "a"\nbudget = 20\n': "budget: expected text, got 20",
    '[[leg]]\nname = "../a"\nbudget = "1m"\n': "name: expected lower-case letters, digits and -, got '../a'",
    f"{LEG}\nranks = []\n": "ranks: expected a list of different values, got []",
    f"{LEG}\nranks = 0\n": "--ranks",
    f'{LEG}\nlevel = "huge"\n': "--level: expected one of",
    f'{LEG}\ndevice = "abacus"\n': "abacus",
    f"{LEG}\nranks = true\n": "ranks: expected a whole number, got True",
    LEG.replace("gate", "corpus", 1): "'corpus' names another part of a night",
    f"{LEG}{LEG}": "two legs are called gate",
    "leg = 3\n": "leg: expected [[leg]], got 3",
    f'{LEG}\nrequirements = ["NOPE-999"]\n': "requirements: no requirement",
    f'{LEG}\n[history]\nfile = "none/h.sqlite"\n': "[history] file: there is no folder",
    '[soak]\nbudget = "2h"\nfiles = 0\n': "[soak] files: expected a number from 1 to 1,000,000, got 0",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path, text, capsys, monkeypatch):
    with pytest.raises(UsageError) as raised:
        plan_of(tmp_path, text)
    assert MISTAKES[text] in str(raised.value) and "\n" not in str(raised.value)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert command(["nightly", str(tmp_path / "plan.toml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before, "nothing was written"
