"""A small real run on the emulated device: bundled, verified, and one of its cases run again."""

import hashlib
import re
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from certificates import archive, load_private, load_public, make, new_key
from certificates.verification import verify
from command_line.commands.verify import CASES_NOT_DRAWN
from command_line.main import run as command
from command_line.suite import redrawn, rerun
from conformance import recorded
from fixtures import judged
from harness.evidence import Case, Group, Kernel, case_id, parse, read
from harness.evidence.records import from_json
from harness.isa import Roots, fingerprint
from tests import python
from tests.certificates import run
from tests.evidence import samples

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def started(folder, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return python.run(command, cwd=folder, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a key and the certificate of the run."""
    folder = tmp_path_factory.mktemp("run")
    new_key(folder / "a.key")
    evidence = folder / "evidence.jsonl"
    chosen = (
        "test_width_by_function and put or test_gather or test_barrier_order or test_hinted or (litmus and MP)"
        " or (cache_modifiers and put and not by) or (test_order and add and not by)"
    )
    selection = ["conformance/isa", "conformance/rma/test_cache_modifiers.py", "conformance/ordering/test_litmus.py"]
    selection += ["-k", chosen]
    options = ["--ranks", "2", "--level", "ci", "-p", "no:cacheprovider", "--evidence", evidence]
    done = started(ROOT, "-m", "pytest", *selection, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    done = started(ROOT, "-m", "command_line", "bundle", evidence, "--sign", folder / "a.key")
    assert done.returncode == 0, done.stderr
    return folder


def test_it_is_genuine_and_partial(folder):
    certificate, key = folder / "certificate.zip", load_public(folder / "a.key.pub")
    checked = verify(certificate, key, datetime.now(timezone.utc), recorded)
    assert checked.problems == ()
    assert checked.signed and checked.suite_compared
    assert checked.manifest["result"] == "WARNED"
    assert checked.judged_again == len(checked.evidence.cases) and checked.other_sources == ()
    listings = [name for name in run.members_of(certificate) if archive.listing_hash(name)]
    assert len(listings) > 2
    assert all(kernel.roots for kernel in checked.evidence.kernels.values()), "the device knows the table of heap bases"


def forged(folder, requirement, edit):
    """Return a certificate whose evidence has other listings of the kernels of a requirement: coherent, and signed by
    the person who made the run."""
    lines = (folder / "evidence.jsonl").read_bytes().splitlines()
    listed = [from_json(parse(line)) for line in lines]
    judged = {
        hash_ for each in listed if isinstance(each, Case) and each.requirement == requirement for hash_ in each.kernels
    }
    texts = {}

    def record(each):
        if not isinstance(each, Kernel):
            return each
        members = run.members_of(folder / "certificate.zip")
        text = archive.expanded(members[archive.listing_name(each.listing_sha256)], 1 << 24).decode()
        if each.hash in judged:
            text = re.sub(*edit, text, flags=re.MULTILINE)
        texts[each.hash] = text
        figures = fingerprint(text, roots=Roots.from_json(each.roots)).to_json()
        return replace(each, fingerprint=figures, listing_sha256=hashlib.sha256(text.encode()).hexdigest())

    evidence = samples.write(folder / "forged" / "evidence.jsonl", [record(each) for each in listed])
    for hash_, text in texts.items():
        file = folder / "forged" / hash_ / "kernel.amdgcn"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    output = folder / "forged" / "certificate.zip"
    key = load_private(folder / "a.key")
    make(evidence, output, key, datetime.now(timezone.utc), lambda hash_: folder / "forged" / hash_)
    return output


@pytest.mark.parametrize(
    ("requirement", "edit", "problem"),
    [
        ("ISA-WIDTH-004", (r"global_store_dwordx4", "global_store_dwordx2"), "remote store accesses are"),
        ("ISA-WIDTH-002", (r"global_store_dwordx4", "global_store_dwordx2"), "remote store accesses are"),
        ("ISA-WIDTH-005", (r"global_atomic_pk_add_f16 ", "global_atomic_cmpswap "), "instead of atomics of 4 bytes"),
        ("HOST-DEVICE-BARRIER-004", (r"^\s*buffer_wbl2.*\n", ""), "lack: release at system scope"),
        ("ATOMIC-ORDER-001", (r"^\s*buffer_inv.*\n", ""), "(amdgcn) of atomic_kernel is "),
        ("RMA-CACHE-001", (r"(global_store_dwordx4 .*) nt$", r"\1"), "the remote stores in the listing of"),
    ],
)
def test_an_edited_listing_that_the_record_agrees_with(folder, requirement, edit, problem):
    path = forged(folder, requirement, edit)
    problems = verify(path, load_public(folder / "a.key.pub"), datetime.now(timezone.utc), recorded).problems
    passed = [each for each in problems if f" passed {requirement}, and " in each]
    assert passed and all(problem in each for each in passed), problems


@pytest.mark.nightly
def test_a_case_is_run_again(folder):
    arguments = ["verify", folder / "certificate.zip", "--key", folder / "a.key.pub", "--rerun", "1"]
    done = started(folder, "-m", "command_line", *arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Rerun: 1 of 1 cases gave the recorded verdict and the recorded code" in done.stdout


@pytest.mark.nightly
def test_a_forged_listing_is_found_by_running_its_case_again(folder, monkeypatch, capsys):
    """The listing, its hash and its figures agree, and no rule is about one more instruction."""
    path = forged(folder, "ISA-WIDTH-005", (r"(^\s*s_endpgm)", r"\ts_nop 0\n\1"))
    checked = verify(path, load_public(folder / "a.key.pub"), datetime.now(timezone.utc), recorded)
    assert checked.problems == ()
    chosen = next(case.id for case in checked.evidence.cases if case.requirement == "ISA-WIDTH-005")
    monkeypatch.setattr("random.SystemRandom.sample", lambda self, population, k: [chosen])
    assert rerun.cases(checked, 1, None) == 1
    line = f"case {chosen} of ISA-WIDTH-005[ranks=2] ran other code than the certificate records: by_context"
    assert line in capsys.readouterr().out


def with_edited_group(folder, edit):
    """Return a certificate of the run in which ``edit`` has changed the cases of one group, with the counts of the
    group made right: signed by the person who made the run."""
    listed = [from_json(parse(line)) for line in (folder / "evidence.jsonl").read_bytes().splitlines()]
    at = next(n for n, each in enumerate(listed) if isinstance(each, Group) and each.cases > 1)
    members = [each for each in listed if isinstance(each, Case) and each.group == listed[at].group]
    kept = edit(members)
    kept_ids = {each.id for each in kept}
    before = [each for each in listed[:at] if each not in members]
    listed = [*before, *kept, replace(listed[at], cases=len(kept)), *listed[at + 1 :]]
    launched = {hash_ for each in listed if isinstance(each, Case) for hash_ in (*each.kernels, *each.launches)}
    listed = [each for each in listed if not isinstance(each, Kernel) or each.hash in launched]
    assert len(kept_ids) == len(kept)
    evidence = samples.write(folder / "edited" / "evidence.jsonl", listed)
    assert read(evidence).problems == []
    for each in listed:
        if isinstance(each, Kernel):
            member = run.members_of(folder / "certificate.zip")[archive.listing_name(each.listing_sha256)]
            file = folder / "edited" / each.hash / "kernel.amdgcn"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(archive.expanded(member, 1 << 24))
    output = folder / "edited" / "certificate.zip"
    make(evidence, output, load_private(folder / "a.key"), datetime.now(timezone.utc), lambda h: folder / "edited" / h)
    return output, members[0].group


def in_place_of(case, **fields):
    """Return the case with other fields, and without measurements."""
    plain = {**case.case, "fields": {**case.case["fields"], **fields}}
    return replace(case, case=plain, id=case_id(case.requirement, case.group, plain), timing={}, telemetry={})


@pytest.fixture
def as_before():
    """Restore what drawing has set."""
    before = judged.api, judged.vocabulary, judged.capabilities
    yield
    judged.api, judged.vocabulary, judged.capabilities = before


@pytest.mark.usefixtures("as_before")
def test_the_cases_of_a_run_are_those_that_are_drawn_again(folder, capsys):
    assert command(["verify", str(folder / "certificate.zip"), "--key", str(folder / "a.key.pub"), "--cases"]) == 3
    shown = capsys.readouterr().out
    [(same, of)] = re.findall(r"Cases: (\d+) of (\d+) groups that passed have exactly the cases", shown)
    assert same == of and int(of) > 5
    assert CASES_NOT_DRAWN not in shown


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda cases: cases[1:], " lacks 1 of the "),
        (lambda cases: cases[:-1], " lacks 1 of the "),
        (lambda cases: [*cases[:-1], in_place_of(cases[-1], seed=123456)], " lacks 1 of the "),
        (lambda cases: [*cases, in_place_of(cases[-1], seed=123456)], " has 1 cases that are not drawn for it"),
    ],
    ids=["the first is dropped", "the last is dropped", "one is replaced", "one is added"],
)
def test_a_group_with_other_cases_is_found_by_drawing_them_again(folder, capsys, edit, problem):
    """Coherent, and signed with the right key: nothing else contradicts it."""
    path, group = with_edited_group(folder, edit)
    assert command(["verify", str(path), "--key", str(folder / "a.key.pub")]) == 3
    assert CASES_NOT_DRAWN in capsys.readouterr().out
    assert command(["verify", str(path), "--key", str(folder / "a.key.pub"), "--cases"]) == 1
    assert f"{group}{problem}" in capsys.readouterr().out


@pytest.mark.usefixtures("as_before")
def test_another_hypothesis_draws_other_cases(folder, capsys, monkeypatch):
    monkeypatch.setattr(redrawn, "installed_version", lambda package: "6.0.0")
    assert command(["verify", str(folder / "certificate.zip"), "--key", str(folder / "a.key.pub"), "--cases"]) == 2
    assert "--cases needs the Hypothesis of the run" in capsys.readouterr().err
