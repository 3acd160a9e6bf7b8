"""``--share K/N``: each slow test belongs to one share, and all other tests run in each of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
@pytest.mark.parametrize("n", range(20))
def test_slow(n):
    pass

@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.long) for n in range(20)] + [20])
def test_long(n):
    pass
"""


def collected(folder, *options):
    """Return the names of the tests that a run chooses, and all that it prints."""
    (folder / "test_example.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    long\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.share", "-p", "no:cacheprovider", "--collect-only", "-q"]
    done = subprocess.run(
        [*command, *options, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line], done.stdout + done.stderr


def test_shares_have_each_slow_test_once_and_the_others_always(tmp_path):
    everything, _ = collected(tmp_path)
    assert len(everything) == 42
    parts = [collected(tmp_path, "--share", f"{number}/3")[0] for number in (1, 2, 3)]
    for name in everything:
        assert sum(name in part for part in parts) == (3 if name in ("test_quick", "test_long[20]") else 1), name
    assert all(5 < len(part) < 30 for part in parts)
    assert collected(tmp_path, "--share", "1/1")[0] == everything


@pytest.mark.parametrize("share", ["0/3", "4/3", "1", "1/0", "-1/3", "a/b", ""])
def test_another_text_is_refused(tmp_path, share):
    names, shown = collected(tmp_path, f"--share={share}")
    assert not names
    assert f"{share!r} is not a share K/N with 1 <= K <= N, such as 1/3" in shown
