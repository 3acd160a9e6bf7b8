"""A small real run on the emulated device: bundled, verified, and one of its cases run again."""

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from certificates import archive, load_public, new_key
from certificates.verification import verify
from conformance import recorded
from tests.certificates import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def python(folder, *arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a key and the certificate of the run."""
    folder = tmp_path_factory.mktemp("run")
    new_key(folder / "a.key")
    evidence = folder / "evidence.jsonl"
    selection = ["conformance/isa/test_remote_width.py", "-k", "test_width_by_function and put or gather"]
    options = ["--ranks", "2", "--level", "ci", "-p", "no:cacheprovider", "--evidence", evidence]
    done = python(ROOT, "-m", "pytest", *selection, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    done = python(ROOT, "-m", "command_line", "bundle", evidence, "--sign", folder / "a.key")
    assert done.returncode == 0, done.stderr
    return folder


def test_it_is_genuine_and_partial(folder):
    certificate, key = folder / "certificate.zip", load_public(folder / "a.key.pub")
    checked = verify(certificate, key, datetime.now(timezone.utc), recorded)
    assert checked.problems == ()
    assert checked.signed and checked.suite_compared
    assert checked.manifest["result"] == "WARNED"
    listings = [name for name in run.members_of(certificate) if archive.listing_hash(name)]
    assert len(listings) > 2
    assert all(kernel.roots for kernel in checked.evidence.kernels.values()), "the device knows the table of heap bases"


@pytest.mark.nightly
def test_a_case_is_run_again(folder):
    arguments = ["verify", folder / "certificate.zip", "--key", folder / "a.key.pub", "--rerun", "1"]
    done = python(folder, "-m", "command_line", *arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Rerun: 1 of 1 cases gave the recorded verdict" in done.stdout
