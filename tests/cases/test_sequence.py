"""The steps that the rules of sequences draw."""

from dataclasses import replace

from conformance.collectives.cases import CollectiveCase
from conformance.sequences.model import Model
from conformance.sequences.rules import RULES


def test_a_ring_has_no_fewer_programs_than_rings():
    """A library refuses other calls, which would look like its defect."""
    ring = CollectiveCase(op="all_reduce", variant="ring", rings=2, comm_sms=2)
    for case, expected in ((ring, {2, 3}), (replace(ring, rings=1), {1, 2, 3})):
        model = Model(2, calls=(case,))
        assert {RULES["collective"].draw(model, place(number))["comm_sms"] for number in range(3)} == expected


def place(number):
    """Choose the option at ``number``, modulo their number."""
    return lambda options: options[number % len(options)]
