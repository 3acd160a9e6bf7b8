"""``iris-harness mutants``: list, report and its exit statuses."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from command_line.commands import mutants
from mutants.matrix import Matrix
from tests.mutants.test_matrix import ALIVE, KILLED


def invoke(*arguments):
    return CliRunner().invoke(mutants.command, list(arguments), standalone_mode=False)


def test_list_prints_id_and_change():
    done = invoke("list", "--kind", "reported", "--only", "gfx90a")
    assert done.output == "reported:the write-back of gfx90a  buffer_wbl2 sc0 sc1 -> buffer_wbl2\n"


@pytest.mark.parametrize(("results", "status"), [([KILLED], 0), ([KILLED, ALIVE], 1)])
def test_report_prints_the_page_and_is_red_for_a_survivor(tmp_path, results, status):
    Matrix({"seed": 0}, {"cores": "2"}, {"source": 9}, results).write(tmp_path / "matrix.json")
    done = invoke("report", str(tmp_path / "matrix.json"))
    assert done.return_value == status and done.output.startswith("# Kill matrix\n")


def test_help_explains_the_exit_status():
    done = invoke("run", "--help")
    assert "Exit status 0 if every decided mutant was killed" in " ".join(done.output.split())
