"""The library does not know that it is under test: its sources neither import the harness nor name it.

Only what the sources spell out is found: a name that is put together at run time is not.
"""

import ast
import importlib.machinery
import re
from pathlib import Path

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

PACKAGES = ("harness", "fixtures", "conformance", "reports", "certificates", "mutants")
"""Packages of the harness."""

NAMES = re.compile(rf"iris[-_ ]harness|^({'|'.join(PACKAGES)})\.\w|^(harness|conformance)$", re.IGNORECASE)
"""Texts that name the harness or a module of it."""


def run(env, case):
    findings = Findings(env.rank)
    root = env.under_test.name.partition(".")[0]
    # Found without the import system: a judge refuses to import the library.
    spec = importlib.machinery.PathFinder.find_spec(root)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).rglob("*.py")):
            for line, name in named(path.read_text(encoding="utf-8")):
                findings.note(f"{path.relative_to(folder)}:{line} names the harness", name, "no such name")
    return findings.first


def named(source):
    """Yield line and text of each place of the source that imports the harness, or has its name in a text.

    Docstrings and comments do not count.
    """
    tree = ast.parse(source)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            if NAMES.search(node.value):
                yield node.lineno, node.value
            continue
        else:
            continue
        yield from ((node.lineno, name) for name in modules if name.partition(".")[0] in PACKAGES)


@requirement(
    "NEGATIVE-INDEPENDENT-001",
    cases=lambda ranks: [HostCase("sources")],
    one_process="it reads sources, and calls nothing of the library",
)
def test_independence(check, case):
    check(run, case)
