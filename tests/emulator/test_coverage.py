"""No opcode without a test: every entry of the table has its semantics, or a test that says so by ``@covers``."""

import importlib
import pkgutil

import tests.emulator
from harness.emulator.ops import TABLE
from tests.emulator.covering import COVERED
from tests.emulator.semantics import SEMANTICS


def test_every_opcode_of_the_table_has_an_edge_test():
    for module in pkgutil.iter_modules(tests.emulator.__path__, "tests.emulator."):
        if module.name.rsplit(".", 1)[1].startswith(("test_ops", "test_traps", "semantics_")):
            importlib.import_module(module.name)
    untested = sorted(set(TABLE) - set(SEMANTICS) - COVERED)
    assert not untested, f"{len(untested)} opcodes have no edge test: {untested}"


def test_no_semantics_without_an_opcode():
    """A name in the semantics that the table lacks tests nothing; those of packed ops stand under the plain name."""
    from tests.emulator.test_ops_packed import PLAIN

    assert not set(SEMANTICS) - set(TABLE) - set(PLAIN.values())
