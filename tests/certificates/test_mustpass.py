"""A certificate has the groups that the suite lists for its level, hardware profile and API.

Each forgery here is coherent and signed with the right key: the signer himself made it.
"""

from dataclasses import replace

import pytest

from certificates import archive
from command_line.commands import verify as verify_command
from command_line.main import run as command
from harness.errors import UsageError
from harness.evidence import APART, ONE_PROCESS, Hardware, Run, read, withdrawn
from harness.evidence.mustpass import parse_list
from tests.certificates import run
from tests.certificates.run import GROUPS, Signer, check, members_of
from tests.certificates.test_forgeries import FORGERIES, PUT_FP32, edited, without_group


@pytest.fixture(scope="module")
def forging(tmp_path_factory, signer):
    """The signer, who can change the lists in a folder of his own."""
    return replace(Signer.at(tmp_path_factory.mktemp("forging")), key=signer.key)


@pytest.mark.usefixtures("installed")
def test_a_complete_run_is_proven_to_have_every_group_of_its_level(capsys, signer, certificate):
    assert check(certificate, signer.key.public).problems == ()
    assert command(["verify", str(certificate), "--key", str(signer.folder / "signer.key.pub")]) == 0
    shown = capsys.readouterr().out
    assert "level gate on emulated-gfx942, API extended" in shown
    assert "the plan has every group that level gate has on emulated-gfx942 for the API extended" in shown


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "a group is removed with its plan entry",
            f"the plan lacks groups that level gate on emulated-gfx942 for the API extended has: {PUT_FP32}",
        ),
        (
            "a requirement is called not applicable",
            "the plan calls ATOMIC-ADD-001 not applicable (this device has no atomics), and level gate on"  # noqa: ISC004
            " emulated-gfx942 for the API extended has it",
        ),
        ("the seed is another one", "the run is recorded with seed 7, and level gate on emulated-gfx942 has 20"),
        ("the level is another one", "the list of level gate has no profile emulated-gfx942 of level stress"),
    ],
)
def test_a_forgery_of_the_signer(signer, name, problem):
    problems = check(signer.certificate(FORGERIES[name](run.records()), "forged.zip"), signer.key.public).problems
    assert problem in problems


@pytest.mark.usefixtures("installed")
def test_a_group_that_is_also_removed_from_the_list(signer, forging):
    (forging.folder / "gate.toml").write_text(run.MUSTPASS.replace(f"{PUT_FP32}\n", ""))
    forged = forging.certificate(without_group(PUT_FP32)(run.records()))
    assert check(forged, signer.key.public).problems == (
        "mustpass.toml is not that of the suite that the evidence names, which is installed here",
    )


def test_a_group_that_is_also_removed_from_a_list_of_another_suite(capsys, signer, forging):
    """Nothing here contradicts the list of a suite that is not installed: the certificate then proves no level."""
    (forging.folder / "gate.toml").write_text(run.MUSTPASS.replace(f"{PUT_FP32}\n", ""))
    forged = forging.certificate(without_group(PUT_FP32)(run.records()))
    assert command(["verify", str(forged), "--key", str(signer.folder / "signer.key.pub")]) == 3
    shown = capsys.readouterr().out
    assert "that requirements and groups are those of a published suite: another version made the certificate" in shown
    assert "the plan has every group that level" not in shown


@pytest.mark.usefixtures("installed")
def test_a_group_that_is_added(signer, forging):
    """A group of another level, or one that the suite never had."""
    (forging.folder / "gate.toml").write_text(run.MUSTPASS)
    (signer.folder / "gate.toml").write_text(run.MUSTPASS.replace(f"{PUT_FP32}\n", ""))
    try:
        [problem] = check(signer.certificate(run.records(), "added.zip"), signer.key.public).problems
    finally:
        (signer.folder / "gate.toml").write_text(run.MUSTPASS)
    assert problem.endswith(f"does not have: {PUT_FP32}")


@pytest.mark.usefixtures("installed")
def test_a_requirement_that_the_list_calls_not_applicable_for_another_reason(signer):
    text = run.MUSTPASS.replace(f"{GROUPS[2].group}\n", "") + '[part.not_applicable]\nATOMIC-ADD-001 = "needs a GPU"\n'
    (signer.folder / "gate.toml").write_text(text)
    try:
        forged = signer.certificate(FORGERIES["a requirement is called not applicable"](run.records()), "reason.zip")
        [problem] = check(forged, signer.key.public).problems
    finally:
        (signer.folder / "gate.toml").write_text(run.MUSTPASS)
    assert problem.startswith("the plan calls ATOMIC-ADD-001 not applicable for the reason 'this device has no")
    assert problem.endswith("for the reason 'needs a GPU'")


@pytest.mark.usefixtures("installed")
def test_a_list_that_is_left_out(signer, certificate):
    def change(members):
        del members[archive.MUSTPASS]

    problems = check(run.rewritten(certificate, change, signer.key), signer.key.public).problems
    assert "the certificate lacks mustpass.toml, and the run is recorded for the profile emulated-gfx942" in problems


@pytest.mark.usefixtures("installed")
def test_a_run_without_a_profile_is_genuine_and_for_no_level(capsys, signer):
    path = signer.certificate(edited(Run, profile="none")(run.records()), "none.zip")
    assert archive.MUSTPASS not in members_of(path)
    checked = check(path, signer.key.public)
    assert (checked.problems, checked.manifest["result"]) == ((), "WARNED")
    assert command(["verify", str(path), "--key", str(signer.folder / "signer.key.pub")]) == 3
    assert "for no level: the run has the cases of level gate, and no hardware profile" in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("fixtures", [{"commit": None, "sha256": "9" * 64}, None])
def test_a_judge_with_other_sources_proves_no_level(capsys, signer, fixtures):
    """The suite is the installed one, and the package that compares was edited, or is not recorded."""
    listed = run.records()
    packages = dict(listed[0].harness["packages"])
    packages.pop("fixtures")
    packages |= {"fixtures": fixtures} if fixtures else {}
    edit = edited(Run, harness={"version": "0.2.0", "packages": packages})
    path = signer.certificate(edit(listed), "judge.zip")
    assert check(path, signer.key.public).problems == ()
    assert command(["verify", str(path), "--key", str(signer.folder / "signer.key.pub")]) == 3
    shown = capsys.readouterr().out
    assert "the judge is that of a published release: the recorded sources of fixtures are not those installed" in shown


@pytest.mark.usefixtures("installed")
def test_a_run_on_gpus_of_which_nothing_is_recorded(signer, certificate):
    checked = check(certificate, signer.key.public)
    [recorded] = checked.evidence.runs
    stated = "that the GPUs are those of mi300x-8: the evidence has no record of them"
    evidence = replace(checked.evidence, runs=[replace(recorded, device="rocm", profile="mi300x-8")])
    assert stated in list(verify_command.unproven(checked, evidence))
    known = replace(evidence, hardware=[Hardware("amdsmi", 0.1)])
    assert stated not in list(verify_command.unproven(checked, known))


@pytest.mark.usefixtures("installed")
def test_a_run_on_gpus_that_was_judged_apart(signer, certificate):
    """A GPU does not count what kernels access, and its memory is exported by the process of the library."""
    checked = check(certificate, signer.key.public)
    [recorded] = checked.evidence.runs
    for device, judge, stated in (("cuda", APART, 1), ("cuda", ONE_PROCESS, 0), ("emulated", APART, 0)):
        cases = [replace(case, judge=judge) for case in checked.evidence.cases]
        evidence = replace(checked.evidence, runs=[replace(recorded, device=device)], cases=cases)
        lines = [line for line in verify_command.unproven(checked, evidence) if "that kernels moved the data" in line]
        assert len(lines) == stated, (device, judge)
        assert all("launches took place and ended" in line for line in lines)


def test_a_recorded_gpu_of_another_model():
    """A run for one GPU that was made on another, as its hardware record shows."""
    listed = parse_list(run.MUSTPASS.replace("models = []", 'models = ["MI300X"]').encode(), "list")
    evidence = read_records()
    evidence.hardware.append(Hardware("amdsmi", 0.1, gpus={"GPU-1": {"name": "AMD Instinct MI300X"}}))
    assert list(listed.problems(evidence)) == []
    evidence.hardware.append(Hardware("nvml", 0.1, gpus={"GPU-1": {"name": "NVIDIA H200"}}))
    assert list(listed.problems(evidence)) == [
        "the run is for the profile emulated-gfx942, and a recorded GPU is NVIDIA H200"
    ]


@pytest.mark.parametrize(("ranks", "group"), [((12,), "ranks=12"), ((2,), "ranks=2")])
def test_twelve_ranks_are_not_two(signer, ranks, group):
    """Khronos's checker reads ``12-of-16`` as 2, by a greedy pattern."""
    records = [
        replace(each, ranks=ranks) if isinstance(each, Run) else each
        for each in run.renamed(run.records(), "ranks=2", "ranks=12")
    ]
    problems = check(signer.certificate(records, "twelve.zip"), signer.key.public).problems
    contradicts = any("the plan has groups of 12 ranks, and the run is recorded with 2" in each for each in problems)
    assert contradicts == (group == "ranks=2")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("field", ["device", "arch", "ranks", "ranks_per_gpu", "mode", "seed", "level", "profile"])
def test_each_wrong_field_alone_is_found(signer, field):
    """Khronos's checker has an ``and`` where it needs an ``or``: there, one right value hides a wrong one."""
    other = {
        "device": "cuda", "arch": "gfx950", "ranks": (2, 4), "ranks_per_gpu": 2, "mode": "check", "seed": 1,
        "level": "core", "profile": "emulated-gfx950",
    }  # fmt: skip
    evidence = read_records()
    evidence.runs[0] = replace(evidence.runs[0], **{field: other[field]})
    assert len(list(parse_list(run.MUSTPASS.encode(), "list").problems(evidence))) == 1


def test_a_withdrawn_release(capsys, signer, certificate, monkeypatch, tmp_path):
    listed = tmp_path / "withdrawn.toml"
    listed.write_text('[[release]]\nversion = "0.2.0"\ndate = 2026-11-24\nreason = "its oracle was blind"\n')
    release = withdrawn.withdrawn("0.2.0", listed)
    monkeypatch.setattr("certificates.verification.withdrawn", lambda version: withdrawn.withdrawn(version, listed))
    [problem, *_] = check(certificate, signer.key.public).problems
    assert problem == f"a withdrawn release made the certificate: {release}"
    assert command(["verify", str(certificate), "--key", str(signer.folder / "signer.key.pub")]) == 1
    assert "withdrawn on 2026-11-24: its oracle was blind" in capsys.readouterr().out
    monkeypatch.setattr("command_line.preflight.withdrawn", lambda version: release)
    assert command(["certify", "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.strip() == f"iris-harness: {release}; install another release"


def test_the_list_of_withdrawn_releases_is_read():
    for release in withdrawn.releases():
        assert withdrawn.withdrawn(release.version) == release
    assert withdrawn.withdrawn(None) is None


@pytest.mark.parametrize(
    "content", ["[[release]]\n", "[", '[[release]]\nversion = "1"\ndate = "soon"\nreason = "x"\n', "release = 3\n"]
)
def test_a_list_of_withdrawn_releases_with_a_mistake(tmp_path, content):
    (tmp_path / "withdrawn.toml").write_text(content)
    with pytest.raises(UsageError, match=r"^withdrawn\.toml"):
        withdrawn.releases(tmp_path / "withdrawn.toml")


def read_records():
    """Return the evidence of the small run."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        return read(run.samples.write(Path(folder, "evidence.jsonl"), run.records()))
