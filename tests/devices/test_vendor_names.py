"""A vendor is named only by the file of its kind of device: no other file compares with or lists vendors' names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "fixtures", "reports", "command_line")
VENDOR_ROOMS = tuple(ROOT / "harness" / room for room in ("devices", "emulated_machine", "emulator", "isa"))
"""The kinds of device, the emulator of one vendor's machine and machine code, and the readers of vendors' listings."""
SOURCES = ("amdsmi_source.py", "amdsmi_values.py", "nvml_source.py")
"""The readers of vendors' telemetry libraries in harness/telemetry, and the words of their fields."""
VENDOR = re.compile(
    r"\b(?:cuda|rocm|hip|amd\w*|nvidia\w*|nvml\w*|rccl\w*|gfx\w*|sm_\d\w*|\w+_VISIBLE_DEVICES)\b", re.IGNORECASE
)
NAMES = ("cuda", "hip", "is_hip", "is_cuda")
"""Attributes that identify the vendor, such as ``torch.version.hip``. ``torch.cuda`` is also ROCm's."""


def vendor_names_in(path):
    """Line and text of each vendor's name in the strings of a file, docstrings aside, and of each look at a build."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from ((node.lineno, name) for name in VENDOR.findall(node.value))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES and "torch.cuda" not in ast.unparse(node):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node.lineno, node.id


def files():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(path.is_relative_to(room) for room in VENDOR_ROOMS) and path.name not in SOURCES:
                yield path


def test_only_a_kinds_own_file_names_a_vendor():
    looked = list(files())
    assert len(looked) > 100
    named = [f"{path.relative_to(ROOT)}:{line}: {name}" for path in looked for line, name in vendor_names_in(path)]
    assert not named, "use the kind of device instead: " + "; ".join(named)


@pytest.mark.parametrize(
    "planted",
    [
        'if device == "cuda": pass',
        'for name in ("cuda", "rocm"): pass',
        'library = "RCCL" if torch.version.hip else other',
        "build = torch.version.cuda",
        "if is_hip(): pass",
        'if arch.startswith("gfx"): pass',
        'MASKS = {0: "HIP_VISIBLE_DEVICES"}',
        'raise ValueError(f"there is no {x} NVIDIA driver")',
        'def f(backend="amd"): pass',
    ],
)
def test_a_planted_name_is_seen(tmp_path, planted):
    path = tmp_path / "planted.py"
    path.write_text(f'"""A module about CUDA and gfx942."""\n{planted}\n')
    assert [line for line, _ in vendor_names_in(path)][:1] == [2]


def test_docstrings_and_torchs_module_are_no_names(tmp_path):
    path = tmp_path / "fine.py"
    path.write_text('"""About CUDA."""\nLIMIT = 3\n"""Of rocm."""\ntorch.cuda.synchronize()\nx = torch.cuda\n')
    assert list(vendor_names_in(path)) == []
