"""Records which opcodes have a test of their own.

``@covers("ds_read_b32")`` marks opcodes that no table of semantics describes.
"""

import importlib
import pkgutil

import tests.emulator
from harness.emulator.driver.coverage import implemented

COVERED: set[str] = set()


def covers(*names: str):
    """Mark the decorated test as checking these opcodes; a string may hold several names, separated by blanks."""

    def mark(test):
        for text in names:
            COVERED.update(text.split())
        return test

    return mark


def edge_tested() -> set[str]:
    """Return the names in the table of instructions whose edge values are tested."""
    from tests.emulator.semantics import SEMANTICS

    for module in pkgutil.iter_modules(tests.emulator.__path__, "tests.emulator."):
        if module.name.rsplit(".", 1)[1].startswith(("test_ops", "test_traps", "semantics_")):
            importlib.import_module(module.name)
    return set(SEMANTICS) | COVERED


def counts(arch: str, executed: set[str]) -> str:
    """Return the three counts of coverage in words, for the opcodes that were executed on an arch."""
    known = implemented(arch)
    tested = {name.partition("@")[0] for name in edge_tested() if name.partition("@")[2] in ("", arch)} & known
    line = f"{arch}: {len(known)} opcodes implemented, {len(tested)} tested at their edges, {len(executed)} executed"
    for gap, names in (("not implemented", executed - known), ("not tested at their edges", executed & known - tested)):
        if names:
            line += f"; executed and {gap}: {', '.join(sorted(names))}"
    return line
