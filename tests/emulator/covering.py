"""Which opcodes have a test of their own: ``@covers("ds_read_b32")`` marks those that no table of semantics
describes."""

import importlib
import pkgutil

import tests.emulator
from harness.emulator.coverage import implemented

COVERED: set[str] = set()


def covers(*names: str):
    """The decorated test checks these opcodes; blank-separated names may stand in one string."""

    def mark(test):
        for text in names:
            COVERED.update(text.split())
        return test

    return mark


def edge_tested() -> set[str]:
    """The names in the table of instructions that some test checks at their edges."""
    from tests.emulator.semantics import SEMANTICS

    for module in pkgutil.iter_modules(tests.emulator.__path__, "tests.emulator."):
        if module.name.rsplit(".", 1)[1].startswith(("test_ops", "test_traps", "semantics_")):
            importlib.import_module(module.name)
    return set(SEMANTICS) | COVERED


def counts(arch: str, met: set[str]) -> str:
    """The three counts of coverage, for the opcodes that were executed on an arch."""
    known = implemented(arch)
    tested = {name.partition("@")[0] for name in edge_tested() if name.partition("@")[2] in ("", arch)} & known
    line = f"{arch}: {len(known)} opcodes implemented, {len(tested)} tested at their edges, {len(met)} met"
    for what, names in (("not implemented", met - known), ("not tested at their edges", met & known - tested)):
        if names:
            line += f"; met and {what}: {', '.join(sorted(names))}"
    return line
