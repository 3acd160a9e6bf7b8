"""The commands of docs/certificates.md work, and its links lead somewhere."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from command_line.main import cli
from command_line.main import run as command
from tests.certificates import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "certificates.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines() if line.startswith("iris-harness ")]


@pytest.mark.parametrize("line", LINES)
def test_the_options_of_a_command_exist(line):
    name, *words = shlex.split(line)[1:]
    subcommand = cli.get_command(click.Context(cli), name)
    if isinstance(subcommand, click.Group):
        subcommand = subcommand.get_command(click.Context(subcommand), words.pop(0))
    subcommand.make_context(name, words)


@pytest.mark.usefixtures("installed")
def test_a_new_key_checks_the_certificate_that_it_signed(monkeypatch, tmp_path, capsys):
    run.lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    [verify] = [line for line in LINES if line.endswith("--key lab.key.pub")]
    assert command(shlex.split(verify)[1:]) == 0
    assert "No check failed." in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl, version 3")
def test_the_signature_is_checked_as_the_page_shows(tmp_path):
    run.lab(tmp_path)
    [block] = [block for block in BLOCKS if "openssl" in block]
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "Verified OK\n"), done.stderr


def test_the_page_lists_the_members():
    table = PAGE.read_text("utf-8").partition("## The file")[2]
    for name in (*run.archive.NEEDED, *run.archive.OPTIONAL, run.archive.listing_name("SHA256")):
        assert f"`{name}`" in table


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
