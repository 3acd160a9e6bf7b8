"""Random programs agree with NumPy, and the generator finds and shrinks a planted fault."""

import gc

import pytest

from harness import emulator
from harness.emulator.driver import translated
from tests.emulator.random_programs import failing, source

SEED = 3


@pytest.fixture
def device():
    yield emulator.activate
    gc.collect()  # frees the programs' kernels: Triton unloads them through the active driver
    emulator.deactivate()


@pytest.mark.parametrize("arch", emulator.ARCHS)
def test_random_programs_agree_with_numpy(device, arch, tmp_path):
    device(arch)
    assert_none(failing(20, SEED, tmp_path), f"--count 20 --arch {arch}")


def test_random_programs_agree_with_numpy_as_machine_code(device, tmp_path, monkeypatch):
    """The same as above, with the programs translated at the first of two launches."""
    device("gfx942")
    for cost in ("COMPILING_FORM", "LOADING_STEP"):
        monkeypatch.setattr(translated, cost, 0.0)
    assert_none(failing(5, SEED + 1, tmp_path, launches=2), f"--count 5 --seed {SEED + 1} --compiled")


def assert_none(failure, options):
    if failure is not None:
        program, error = failure
        again = f"python -m tests.emulator.random_programs --seed {SEED} {options}"
        pytest.fail(f"{type(error).__name__}: {error}\n{source(program)}\nagain: {again}", pytrace=False)


@pytest.mark.nightly
def test_a_planted_fault_is_found_and_shrinks(device, tmp_path):
    device("gfx942").rewrite = lambda _kernel, listing: listing.replace("v_max_i32", "v_max_u32")
    failure = failing(200, SEED, tmp_path, ("i32",))
    assert failure is not None, "an unsigned maximum in place of the signed one went unnoticed"
    program, error = failure
    assert isinstance(error, AssertionError), f"not a wrong result: {error!r}"
    assert program.operations <= 3, source(program)
