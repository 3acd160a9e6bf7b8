"""The merge of shards: what it keeps, what it refuses, and that nothing is counted twice or lost."""

import dataclasses
import json
import re
from collections import Counter

import pytest

import certificates
from command_line.main import run as command_line
from harness.errors import UsageError
from harness.evidence import Case, Group, Plan, Run, Verdict, read, shards
from harness.evidence.chain import Chain
from harness.evidence.merging import merge_shards
from tests.certificates import run as certified
from tests.evidence import samples
from tests.fleet import shard_samples
from tests.fleet.shard_samples import MANDATORY, NAMES, OF, write, write_all


def merged(tmp_path, files):
    output = tmp_path / "merged.jsonl"
    result = merge_shards(output, files, files[0].with_name(shards.FILE))
    return read(output), result


def test_a_merged_run_is_one_complete_run(tmp_path):
    evidence, result = merged(tmp_path, write_all(tmp_path)[::-1])
    assert evidence.problems == [] and evidence.gaps() == ()
    assert evidence.verdict() is Verdict.PASS and evidence.complete and evidence.whole
    assert set(evidence.plan) == set(NAMES) == set(evidence.groups)
    assert Counter(case.group for case in evidence.cases) == Counter(NAMES), "no case twice, none lost"
    assert len(evidence.kernels) == 1 and len(evidence.runs) == 1
    assert (result.missing, result.green, result.counts) == ((), True, {"pass": len(NAMES)})
    owners = {name: f"n{index}" for index, part in enumerate(shards.divided(NAMES, OF), 1) for name in part}
    assert evidence.nodes == {**owners, MANDATORY: "n1"}


def test_a_shard_alone_is_partial_and_passes(tmp_path):
    evidence = read(write_all(tmp_path)[1])
    assert evidence.verdict() is Verdict.PASS and not evidence.complete and not evidence.whole
    assert evidence.missing()[0].startswith("all groups but those of shard 2 of 3")


def test_the_same_merge_gives_the_same_file(tmp_path):
    files = write_all(tmp_path)
    for name in ("a", "b"):
        merge_shards(tmp_path / name, files, files[0].with_name(shards.FILE))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_groups_of_a_missing_shard_did_not_run(tmp_path, lost):
    files = write_all(tmp_path)
    evidence, result = merged(tmp_path, [file for index, file in enumerate(files, 1) if index != lost])
    own = {name for name in shards.divided(NAMES, OF)[lost - 1] if name != MANDATORY}
    assert evidence.problems == []
    assert set(NAMES) - set(evidence.groups) == own, "and the mandatory group ran in another shard"
    [requirement] = evidence.requirements().values()
    assert {name for name, verdict in requirement.groups.items() if verdict is Verdict.NOT_RUN} == own
    assert evidence.verdict().red and evidence.whole
    assert (result.missing, result.green) == ((lost,), False)


def test_a_failure_stays_a_failure(tmp_path):
    files = write_all(tmp_path, verdicts={NAMES[4]: Verdict.FAIL})
    evidence, result = merged(tmp_path, files)
    assert evidence.verdict() is Verdict.FAIL and not result.green
    assert {name for name, [group] in evidence.groups.items() if group.verdict is Verdict.FAIL} == {NAMES[4]}


def test_the_worst_run_of_a_mandatory_group_counts(tmp_path):
    files = [write(tmp_path / str(i), i, verdicts={MANDATORY: Verdict.FAIL} if i == 3 else {}) for i in (1, 2, 3)]
    evidence, result = merged(tmp_path, files)
    assert evidence.problems == [] and evidence.verdict() is Verdict.FAIL
    assert [group.verdict for group in evidence.groups[MANDATORY]] == [Verdict.FAIL]
    assert evidence.nodes[MANDATORY] == "n3"
    [sentence] = result.disagreements
    assert sentence.startswith(f"{MANDATORY}, which every shard runs: fail in shard 3 on n3")


def test_telemetry_of_cases_that_are_dropped_is_dropped_with_them(tmp_path):
    evidence, _ = merged(tmp_path, write_all(tmp_path, hardware={}))
    assert evidence.problems == []
    assert len(evidence.telemetry) == OF


def changed_package(name, version):
    environment = samples.run().environment
    return {"environment": {**environment, "packages": {**environment["packages"], name: version}}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": changed_package("triton", "3.6.0")}, "environment.packages.triton '3.6.0'.*has '3.9.0'"),
        ({"run": changed_package("torch", "2.11")}, "environment.packages.torch"),
        ({"run": {"seed": 21}}, "seed 21, .*has 20"),
        ({"run": {"harness": {"packages": {"harness": {"commit": "f" * 40}}}}}, "harness.packages"),
        ({"run": {"implementation": {"name": "other"}}}, "implementation.commit|implementation.name"),
        ({"run": {"circumstances": {"variables": {"TRITON_DEBUG": "1"}}}}, "circumstances.variables.TRITON_DEBUG '1'"),
        ({"run": {"mode": "weak:1"}}, "mode 'weak:1'"),
        ({"plan": {"not_applicable": {"GPU-1": "needs a GPU"}}}, "another plan than .*not_applicable.GPU-1"),
        ({"hardware": {"driver": {"version": "570.1"}}}, "hardware.driver.version '570.1'.*has '580.159'"),
        ({"names": NAMES[1:]}, "is of another plan than"),
        ({"of": 4}, "is of another plan than"),
        ({"end": False}, "has no end"),
        ({"plan": {"shard": None}}, "is not the evidence of one shard"),
        ({"plan": {"groups": ()}}, "does not plan RMA-PUT-001"),
    ],
)
def test_shards_that_do_not_belong_together_are_refused_in_one_line(tmp_path, changes, words):
    usual = {"hardware": {}} if "hardware" in changes else {}
    files = [write(tmp_path / str(index), index, **(changes if index == 2 else usual)) for index in (1, 2, 3)]
    with pytest.raises(UsageError, match=words) as error:
        merged(tmp_path, files)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "merged.jsonl").exists() and not list(tmp_path.glob(".merged*"))


def test_two_verdicts_for_one_group_are_refused(tmp_path):
    files = write_all(tmp_path)
    again = write(tmp_path / "again", 2, verdicts={NAMES[1]: Verdict.FAIL})
    with pytest.raises(UsageError, match=r"shard 2 on n2 .* is the same shard as .*shard-2"):
        merged(tmp_path, [*files, again])
    foreign = next(group for group in shards.divided(NAMES, OF)[0] if group != MANDATORY)
    planned = read(files[1]).plan
    planned = {**planned, foreign: type(planned[MANDATORY])(foreign, shard_samples.PUT, shard_samples.nodeid(foreign))}
    other = write(tmp_path / "other", 2, plan={"groups": tuple(planned.values())})
    with pytest.raises(UsageError, match="which the division has in another shard"):
        merged(tmp_path, [files[0], other, files[2]])


@pytest.mark.parametrize("damage", ["edit", "cut", "lost line", "not JSON", "twice", "folder"])
def test_a_damaged_shard_is_refused(tmp_path, damage):
    files = write_all(tmp_path)
    lines = files[1].read_bytes().splitlines(keepends=True)
    if damage == "edit":
        lines[4] = lines[4].replace(b'"pass"', b'"fail"')
    elif damage == "cut":
        lines[-1] = lines[-1][:-9]
    elif damage == "lost line":
        del lines[3]
    elif damage == "twice":
        lines.insert(5, lines[4])
    elif damage == "not JSON":
        lines[3] = b"hello\n"
    files[1].write_bytes(b"".join(lines))
    if damage == "folder":
        files[1].unlink()
        files[1].mkdir()
    with pytest.raises(UsageError) as error:
        merged(tmp_path, files)
    assert str(files[1]) in str(error.value)


def test_nothing_is_overwritten(tmp_path):
    files = write_all(tmp_path)
    (tmp_path / "merged.jsonl").write_text("precious")
    with pytest.raises(UsageError, match="overwrites nothing"):
        merged(tmp_path, files)
    assert (tmp_path / "merged.jsonl").read_text() == "precious"


def edited(tmp_path, change):
    """Return the evidence of a merged run whose records ``change`` has edited, with a new and valid chain."""
    merged(tmp_path, write_all(tmp_path))
    plain = [json.loads(line) for line in (tmp_path / "merged.jsonl").read_bytes().splitlines()]
    change(plain)
    chain, output = Chain(plain[0]["run"]), tmp_path / "forged.jsonl"
    with output.open("wb") as file:
        for record in plain:
            record.pop("chain")
            record["sequence"] = chain.sequence
            line, value = chain.sealed(json.dumps(record, separators=(",", ":")).encode())
            file.write(line)
            chain.advance(value)
    return read(output)


def plans(records):
    return [record for record in records if record["record"] == "plan"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: plans(r)[1].update(shard={**plans(r)[1]["shard"], "of": 9}), "another division"),
        (lambda r: plans(r)[1].update(shard={**plans(r)[1]["shard"], "index": 1}), "has a plan already"),
        (lambda r: plans(r)[1].update(shard={**plans(r)[1]["shard"], "plan": "0" * 64}), "another division"),
        (lambda r: plans(r)[1].update(left_out={"RMA-PUT-001": "why not"}), "leaves RMA-PUT-001 out|states more"),
        (lambda r: plans(r)[1]["groups"].append(plans(r)[0]["groups"][0]), "which another shard has run"),
        (lambda r: plans(r)[2].pop("shard"), "differs from the plan before it"),
        (
            lambda r: plans(r)[1]["groups"].append({"group": "X-1[ranks=2]", "requirement": "X-1", "nodeid": "x"}),
            "whose requirement is not in its table",
        ),
    ],
)
def test_a_forged_plan_of_a_merged_run_is_a_problem(tmp_path, change, words):
    evidence = edited(tmp_path, change)
    assert any(re.search(words, problem) for problem in evidence.problems), evidence.problems
    assert evidence.verdict() is not Verdict.PASS


def test_a_merged_run_without_the_plan_of_a_shard_is_not_whole(tmp_path):
    def drop(records):
        index = next(i for i, record in enumerate(records) if record == plans(records)[2])
        del records[index:-1]

    evidence = edited(tmp_path, drop)
    assert not evidence.whole and not evidence.complete
    assert certificates.documents.result_of(evidence) != certificates.documents.PASSED


def test_the_command_writes_the_run_and_its_reports(tmp_path, capsys):
    files = write_all(tmp_path)
    folders = [str(file.parent) for file in files]
    assert command_line(["merge", str(tmp_path / "out"), *folders]) == 0
    out = capsys.readouterr().out
    assert "Merged 3 of 3 shards" in out
    assert {"evidence.jsonl", "report.html", "junit.xml"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert command_line(["report", str(tmp_path / "out" / "evidence.jsonl")]) == 0
    capsys.readouterr()
    assert command_line(["merge", str(tmp_path / "out"), *folders]) == 2
    assert "overwrites nothing" in capsys.readouterr().err
    assert command_line(["merge", str(tmp_path / "two"), *folders[:2]]) == 1
    assert "missing shards, whose groups are not run: 3" in capsys.readouterr().err
    both = [str(tmp_path / name / "evidence.jsonl") for name in ("out", "two")]
    assert command_line(["compare", *both]) == 1, "groups that no longer run"
    assert command_line(["merge", str(tmp_path / "three"), *folders[:2], "--no-report"]) == 1
    assert command_line(["merge", str(tmp_path / "four"), str(tmp_path / "absent")]) == 2


def test_waivers_wait_for_the_merge(tmp_path):
    """A waiver of a requirement that passes in one shard is judged in the merged run."""
    waiver = {
        "requirement": shard_samples.PUT, "implementation": "iris_under_test", "issue": "https://example.org/1",
        "reason": "known", "expires": "2027-01-31",
    }  # fmt: skip
    waivers = {"run": {"waivers": {"sha256": "0" * 64, "entries": [waiver]}}}
    files = write_all(tmp_path, verdicts={NAMES[1]: Verdict.FAIL}, **waivers)
    assert read(files[0]).waiver_problems() == ()
    evidence, _ = merged(tmp_path, files)
    assert evidence.verdict() is Verdict.WAIVED and evidence.waiver_problems() == ()
    green = write_all(tmp_path / "green", **waivers)
    merge_shards(tmp_path / "green.jsonl", green, green[0].with_name(shards.FILE))
    assert "is not needed" in read(tmp_path / "green.jsonl").waiver_problems()[0]


def test_the_command_certifies_a_merged_run_as_it_does_any_other(tmp_path):
    """The certificate of a merged run has the documents of its evidence, and one of a shard is for no level."""
    documents = certificates.documents
    evidence, _ = merged(tmp_path, write_all(tmp_path, run={"profile": "emulated-gfx942"}))
    assert documents.for_a_level(evidence) and documents.result_of(evidence) == documents.PASSED
    made = documents.made_from(evidence, "2026-11-26", "0.3", {})
    assert made[documents.MANIFEST]["counts"]["groups"] == len(NAMES) and made[documents.MANIFEST]["missing"] == []
    shard = read(tmp_path / "shard-1" / "evidence.jsonl")
    assert not documents.for_a_level(shard) and documents.result_of(shard) == documents.WARNED


@pytest.mark.parametrize("status", [2, 1, 0])
def test_groups_without_a_record_make_a_merge_without_reports_red(tmp_path, status):
    """A shard that was interrupted has an end, too."""
    files = write_all(tmp_path)
    own = sorted(set(shards.divided(NAMES, OF)[1]) - {MANDATORY})
    files[1] = write(tmp_path / "stopped", 2, drop=(own[0],), status=status)
    evidence, result = merged(tmp_path, files)
    assert evidence.verdict().red
    assert not result.green
    assert result.counts["not_run"] == 1
    assert bool(result.stopped) == (status == 2)


def test_a_shard_whose_pytest_failed_without_a_failed_group_is_red(tmp_path):
    files = write_all(tmp_path)
    files[2] = write(tmp_path / "teardown", 3, status=1)
    evidence, result = merged(tmp_path, files)
    assert evidence.verdict().red
    assert not result.green
    [line] = result.stopped
    assert line.endswith("ended with pytest's status 1")


def sharded(folder, of=2):
    """Write the run of ``tests.certificates.run`` as shards; return their files."""
    names = [planned.group for planned in certified.GROUPS]
    division, text = shards.to_text(names, of, {"level": "gate"})
    files = []
    for index, part in enumerate(shards.divided(names, of), 1):
        own = {*part, *division.mandatory}
        recorded = {"index": index, "of": of, "plan": division.digest, "node": f"n{index}"}
        records = []
        for each in certified.records():
            if isinstance(each, Run):
                each = dataclasses.replace(each, id=f"run{index}", level="gate")
            elif isinstance(each, Plan):
                groups = tuple(planned for planned in each.groups if planned.group in own)
                each = dataclasses.replace(each, groups=groups, shard=recorded)
            elif isinstance(each, (Case, Group)) and each.group not in own:
                continue
            records.append(each)
        records[-1] = samples.end(**{verdict.value: len(own) * (verdict is Verdict.PASS) for verdict in Verdict})
        files.append(samples.write(folder / f"shard-{index}" / "evidence.jsonl", records))
        files[-1].with_name(shards.FILE).write_text(text)
    return files


@pytest.mark.parametrize("lost", [None, 0])
def test_the_certificate_of_a_merged_run_is_verified_as_that_of_any_other(tmp_path, lost):
    signer = certified.Signer.at(tmp_path / "signer")
    files = [file for place, file in enumerate(sharded(tmp_path)) if place != lost]
    output = signer.folder / "evidence.jsonl"
    merge_shards(output, files, files[0].with_name(shards.FILE))
    certificate = signer.made(output)
    result = certified.check(certificate, signer.key.public)
    assert result.evidence is not None
    assert result.evidence.verdict() is (Verdict.PASS if lost is None else Verdict.NOT_RUN)
    assert result.problems == (), "an incomplete run is not a forgery"
