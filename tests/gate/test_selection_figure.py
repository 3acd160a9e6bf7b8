"""The measurement of the gate's selection: it reports a requirement that the gate would miss."""

import pytest

from benchmarks import gate_selection
from benchmarks.gate_selection import Gate, page
from command_line.gate import reach
from command_line.gate.reach import Map, Reached
from mutants import listing
from mutants.mutant import SOURCE

CONTEXT = "device/gluon/context.py"


@pytest.fixture(scope="module")
def mutant():
    """A mutant of the method put of Gluon's context."""
    return next(one for one in listing.all_of(SOURCE) if one.file == CONTEXT and one.function.endswith("put"))


def test_the_requirement_of_the_mutated_method_is_chosen(mutant):
    planted = Gate(reach.read(reach.BUNDLED)).planted(mutant, "RMA-PUT-001")
    assert planted.safe
    assert "RMA-GET-001" not in planted.chosen
    assert 0 < planted.share < 0.5


def test_a_map_that_lacks_a_unit_is_reported_as_unsafe(mutant):
    known = reach.read(reach.BUNDLED)
    blind = {
        name: Reached(frozenset(unit for unit in one.units if not unit.endswith(".put")), one.suite)
        for name, one in known.requirements.items()
    }
    gate = Gate(Map(known.implementation, known.run, known.units, known.suite, blind))
    planted = gate.planted(mutant, "RMA-PUT-001")
    assert not planted.safe
    assert f"- `{mutant.id}`: RMA-PUT-001" in page([planted], 0, [planted, planted], known)


def test_the_page_is_that_of_the_data():
    text = (gate_selection.conformance_folder().parent / "docs/results/gate-selection.md").read_text()
    assert text.startswith("<!-- Written by python -m benchmarks.gate_selection. -->")
    rows = dict(
        line.strip("| ").split(" | ")[:2] for line in text.splitlines() if line.startswith("| ") and " | " in line
    )
    assert (
        rows["killed mutants of the library's source"]
        == rows["of these, killed by a requirement that the gate chooses"]
    )
