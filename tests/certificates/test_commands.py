"""The commands key, bundle and verify: what they print, their exit statuses, and what they import."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from certificates import archive, documents, envelope, new_key, sharpness
from certificates.sharpness import SHARPNESS
from command_line.main import run as command
from command_line.preflight import Request
from command_line.suite import rerun
from harness.evidence import Case, Kernel, read
from tests.certificates import run
from tests.certificates.run import Signer, failing, members_of, records, rewritten
from tests.cli import fake_suite
from tests.evidence import samples

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_GPU_SOFTWARE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

BLOCKED = {"torch", "triton", "numpy", "numba", "llvmlite", "yaml", "pytest", "hypothesis", "rich", "jinja2",
           "msgpack", "matplotlib", "xdist", "packaging"}
sys.meta_path.insert(0, Blocked())
from command_line.main import main
main(sys.argv[1:])
"""


def verify(capsys, path, *options):
    status = command(["verify", str(path), *map(str, options)])
    streams = capsys.readouterr()
    return status, streams.out, streams.err


@pytest.mark.usefixtures("installed")
def test_a_genuine_certificate(capsys, signer, certificate):
    status, out, err = verify(capsys, certificate, "--key", signer.folder / "signer.key.pub")
    assert (status, err) == (0, ""), out
    assert "No check failed. The run's result is PASSED." in out
    assert f"the owner of the key {signer.key.public.id} signed exactly these bytes" in out
    assert "3 of 3 requirements passed, by the verdicts of 8 recorded cases" in out
    assert "Not proven:" in out


def test_without_a_key(capsys, certificate):
    status, out, _ = verify(capsys, certificate)
    assert status == 3
    assert "who made the certificate: it names the key" in out
    assert "signed exactly these bytes" not in out


def test_a_run_that_failed(capsys, signer):
    status, out, _ = verify(capsys, signer.certificate(failing(), "f.zip"), "--key", signer.folder / "signer.key.pub")
    assert status == 1
    assert "No check failed. The run's result is FAILED." in out
    assert "2 of 3 requirements passed" in out


def test_all_failed_checks_are_printed(capsys, signer, certificate):
    def change(members):
        members[archive.PLAN] = members[archive.PLAN].replace(b"fp16", b"fp64")
        members[archive.ENVIRONMENT] = members[archive.ENVIRONMENT].replace(b"3.9.0", b"3.6.0")

    forged = rewritten(certificate, change, None)
    status, out, _ = verify(capsys, forged, "--key", signer.folder / "signer.key.pub")
    assert status == 1
    assert "REJECTED: " in out
    for words in (
        "the signature is not one of the key",
        "plan.json: groups is",
        "environment.json, environment, packages",
    ):
        assert words in out
    assert "Proven" not in out


def test_what_cannot_be_read(capsys, signer, certificate, tmp_path):
    (tmp_path / "text").write_text("hello")
    for arguments in (
        [tmp_path / "missing"],
        [tmp_path],
        [tmp_path / "text"],
        [certificate, "--key", tmp_path / "text"],
        [certificate, "--key", signer.folder / "signer.key"],
    ):
        status, out, err = verify(capsys, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("iris-harness: ")
        assert err.count("\n") == 1


def test_text_of_a_certificate_does_not_act_on_the_terminal(capsys, certificate):
    def change(members):
        members[archive.MANIFEST] = members[archive.MANIFEST].replace(b'"PASSED"', b'"\\u001b[31m\\u202e"')

    _, out, _ = verify(capsys, rewritten(certificate, change, None))
    assert "REJECTED" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_verify_needs_no_gpu_software(signer, certificate):
    """As in an environment without torch and Triton: nothing may import them, or what the suite needs."""
    key = signer.folder / "signer.key.pub"
    for arguments, status in (([certificate, "--key", key], 3), ([certificate], 3), ([key], 2)):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_GPU_SOFTWARE, "verify", *map(str, arguments)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_key_new(capsys, tmp_path):
    path = tmp_path / "a.key"
    assert command(["key", "new", "--output", str(path)]) == 0
    assert f"private key: {path}\npublic key:  {path}.pub\nkey id:      " in capsys.readouterr().out
    assert command(["key", "new", "--output", str(path)]) == 2
    assert "a key is never overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("sign", [True, False])
def test_bundle(capsys, monkeypatch, tmp_path, sign):
    from command_line import kernel_cache
    from harness.evidence import suite

    own = Signer.at(tmp_path / "own")
    own.certificate(records(), "unused.zip")
    monkeypatch.setattr(kernel_cache, "folder", lambda: own.folder / "cache")
    monkeypatch.setattr(kernel_cache, "key_of", lambda kernel_hash: kernel_hash)
    for module in ("making", "verification"):
        monkeypatch.setattr(f"certificates.{module}.sources_of", lambda package: "2" * 64)
        monkeypatch.setattr(f"certificates.{module}.installed_table", lambda: own.folder / "requirements.toml")
        monkeypatch.setattr(f"certificates.{module}.installed_list", lambda level: own.folder / f"{level}.toml")
    (own.folder / "report.html").write_text("<p>report</p>")
    (own.folder / "pytest.log").write_text("log")
    assert suite.SUITE == "conformance"
    options = ["--sign", str(own.folder / "signer.key")] if sign else []
    evidence = str(own.folder / "evidence.jsonl")
    assert command(["bundle", evidence, "--log", str(own.folder / "pytest.log"), *options]) == 0
    out = capsys.readouterr().out
    assert ("signed with the key" in out) == sign
    members = members_of(own.folder / "certificate.zip")
    assert members[archive.REPORT] == b"<p>report</p>"
    assert archive.expanded(members[archive.LOG], 10) == b"log"
    assert envelope.unpack(members[archive.STATEMENT]).key_id == (own.key.public.id if sign else "")
    assert set(members) >= set(archive.NEEDED)
    assert documents.FORMAT == 1
    status, out, _ = verify(capsys, own.folder / "certificate.zip", "--key", own.folder / "signer.key.pub")
    assert status == (0 if sign else 1), out


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("statuses", [(0, 0), (0, 1)])
def test_rerun_compares_verdicts(capsys, monkeypatch, signer, certificate, statuses):
    results = iter(statuses)
    monkeypatch.setattr("command_line.suite.rerun._started", lambda replay, folder: Ended(next(results)))
    monkeypatch.setattr("command_line.commands.replay.recorded_cases", lambda place, names, _: [*map(Replayed, names)])
    monkeypatch.setattr("command_line.preflight.check_software", lambda *arguments: None)
    status, out, _ = verify(capsys, certificate, "--key", signer.folder / "signer.key.pub", "--rerun", 2)
    assert status == statuses[1]
    assert f"Rerun: {2 - statuses[1]} of 2 cases" in out
    assert ("did not pass, and the certificate records pass" in out) == (status == 1)


def changed_kernel(listed, old, **changes):
    return [replace(each, **changes) if isinstance(each, Kernel) and each.hash == old else each for each in listed]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (lambda listed: listed, ""),
        # The listing of the certificate is another one than that of the kernel which this machine compiles.
        (
            lambda listed: changed_kernel(listed, run.WIDE_HASH, fingerprint=run.kernel(run.NARROW_HASH).fingerprint),
            "ran other code than the certificate records: put_wide",
        ),
        # A new process also launches what an earlier case has launched in the recorded one.
        (
            lambda listed: [
                replace(each, kernels=(run.WIDE_HASH, run.NARROW_HASH), launches={}) if isinstance(each, Case) else each
                for each in listed
            ],
            "",
        ),
        (
            lambda listed: [
                replace(each, kernels=(), launches={}) if isinstance(each, Case) else each for each in listed
            ],
            "ran other code than the certificate records: put_wide",
        ),
    ],
)
def test_rerun_compares_the_code(tmp_path, again, expected):
    evidence = read(samples.write(tmp_path / "recorded.jsonl", run.records()))
    place = samples.write(tmp_path / "again.jsonl", again(run.records()))
    case = evidence.cases[0]
    line = rerun._other_code(case, evidence, place)
    assert line.endswith(expected) and bool(line) == bool(expected)


@pytest.mark.parametrize(
    ("sources", "triton", "expected"),
    [
        ("4" * 64, "3.9.0", ""),
        ("4" * 64, "3.8.0", "this machine has Triton 3.8.0, and the run had 3.9.0"),
        ("5" * 64, "3.9.0", "the sources of iris_under_test are not the recorded ones"),
        (None, "3.9.0", "the sources of iris_under_test are not the recorded ones"),
    ],
)
def test_code_is_compared_with_the_same_library_and_triton_only(tmp_path, monkeypatch, sources, triton, expected):
    monkeypatch.setattr("command_line.suite.rerun.sources_of", lambda name: sources)
    monkeypatch.setattr("command_line.suite.rerun.installed_version", lambda name: triton)
    evidence = read(samples.write(tmp_path / "recorded.jsonl", run.records()))
    assert rerun._incomparable(evidence) == expected


@pytest.mark.usefixtures("installed")
def test_a_signal_stops_a_rerun(capsys, monkeypatch, signer, certificate):
    endless = Interrupted(None)
    monkeypatch.setattr("command_line.suite.rerun._started", lambda replay, folder: endless)
    monkeypatch.setattr("command_line.commands.replay.recorded_cases", lambda place, names, _: [*map(Replayed, names)])
    monkeypatch.setattr("command_line.preflight.check_software", lambda *arguments: None)
    status, out, _ = verify(capsys, certificate, "--key", signer.folder / "signer.key.pub", "--rerun", 1)
    assert status == 128 + signal.SIGINT
    assert "Rerun: " not in out
    assert endless.stopped


class Replayed:
    """A case that ``Ended`` stands for, instead of a run of the suite."""

    def __init__(self, name):
        self.record = {"id": name, "group": "RMA-PUT-001[ranks=2]"}
        self.request = Request("emulated", "gfx942", (2,), "gate", "iris_under_test")


class Ended(contextlib.nullcontext):
    def __init__(self, status):
        super().__init__(self)
        self.status, self.tail = status, ()

    def poll(self):
        return self.status

    def join(self):
        pass


class Interrupted(Ended):
    """A run during which the user presses Ctrl-C."""

    stopped = False

    def poll(self):
        os.kill(os.getpid(), signal.SIGINT)

    def stop(self, hurry):
        self.stopped = True


def test_certify_needs_the_key_before_it_runs(capsys, tmp_path):
    assert command(["certify", "--output", str(tmp_path), "--sign", str(tmp_path / "missing.key")]) == 2
    assert "missing.key cannot be read" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_certify_names_why_there_is_no_certificate(tmp_path):
    """The kernels of the fake suite are in no cache; its run has the earlier status otherwise."""
    suite = fake_suite.make_suite(tmp_path / "suite")
    new_key(tmp_path / "a.key")
    (tmp_path / "out" / "certify").mkdir(parents=True)
    (tmp_path / "out" / "certify" / "certificate.zip").write_text("of an earlier run")
    done = fake_suite.run(suite, tmp_path, "certify", "--ranks", "4", "--sign", "a.key")
    assert done.returncode == 1
    assert "iris-harness: no certificate was written: " in done.stderr
    assert "All 2 requirements passed" in done.stdout
    assert not (tmp_path / "out" / "certify" / "certificate.zip").exists()


def test_bundle_refuses_an_unreadable_key_before_it_reads_the_run(capsys, tmp_path):
    assert command(["bundle", str(tmp_path / "evidence.jsonl"), "--sign", str(tmp_path / "missing.key")]) == 2
    assert "missing.key cannot be read" in capsys.readouterr().err


def test_verify_names_the_sharpness_of_the_suite(capsys, certificate):
    assert "the suite's own calls reject 315 of 315 changes of one instruction" in verify(capsys, certificate)[1]


@pytest.mark.parametrize(
    "figure",
    [None, 7, {}, {**SHARPNESS, "rejected": 400}, {**SHARPNESS, "changes": "315"}, {**SHARPNESS, "more": 1}],
    ids=repr,
)
def test_a_figure_of_another_form_is_not_printed(figure):
    assert sharpness.in_words(figure) is None
