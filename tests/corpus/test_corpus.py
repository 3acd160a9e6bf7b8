"""The corpus: real kernels on both archs against torch; every opcode that they execute has an edge test."""

import importlib
import pkgutil

import pytest

import tests.corpus
from harness import emulator
from harness.emulator.driver.coverage import executed, implemented
from tests.corpus.case import CASES
from tests.emulator.covering import edge_tested

for module in pkgutil.iter_modules(tests.corpus.__path__, "tests.corpus."):
    if module.name not in (__name__, "tests.corpus.case"):
        importlib.import_module(module.name)


@pytest.fixture(scope="session")
def tested():
    return {name.partition("@")[0] for name in edge_tested()}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "arch"),
    [pytest.param(case, arch, id=f"{case.family}-{case.name}-{arch}") for case in CASES for arch in case.archs],
)
def test_kernel(case, arch, tested, monkeypatch, record_property):
    driver = emulator.activate(arch)
    opcodes = set()
    run = driver.run

    def recording(streams, closed=False):
        run(streams, closed)
        opcodes.update(*(executed(launch) for stream in streams for launch in stream))

    monkeypatch.setattr(driver, "run", recording)
    try:
        case.check()
    finally:
        emulator.deactivate()
    record_property(f"opcodes of {arch}", " ".join(sorted(opcodes)))
    assert opcodes <= implemented(arch)
    assert opcodes <= tested, f"no edge test: {sorted(opcodes - tested)}"
