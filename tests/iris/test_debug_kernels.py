"""Kernels of the debug build's test are compiled anew when a function that they call has another source."""

import importlib.util
from types import SimpleNamespace

import pytest

from conformance.atomics.operations import ATOMICS
from conformance.negative import checked
from conformance.rma.operations import TRANSFERS

SOURCE = "import triton\n\n@triton.jit\ndef function(x):\n    return x + {}\n"


def function_of(folder, number):
    """Return a function of one module name, whose source depends on ``number``."""
    folder.mkdir(exist_ok=True)
    (folder / "planted_functions.py").write_text(SOURCE.format(number))
    spec = importlib.util.spec_from_file_location("planted_functions", folder / "planted_functions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.function


class Recorder:
    """A kernel that notes its arguments."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append(arguments)


@pytest.mark.parametrize("form", ["function", "gluon", "context"])
def test_another_source_is_another_argument(tmp_path, monkeypatch, form):
    """Triton's disk cache knows the functions of a tuple by their names alone, which are equal here."""
    kernel = Recorder()
    monkeypatch.setitem(checked.KERNELS, form, kernel)
    transfer, atomic = next(iter(TRANSFERS.values())), next(iter(ATOMICS.values()))
    for number in (1, 2, 1):
        function = function_of(tmp_path / str(number), number)
        env = SimpleNamespace(
            under_test=SimpleNamespace(function=lambda name, chosen=function: chosen, triton_context=None),
            iris=SimpleNamespace(get_heap_bases=lambda: None), device=SimpleNamespace(lanes=64), device_context=None,
            context=None, rank=0, world_size=2,
        )  # fmt: skip
        calls = {**transfer.calls, form: function}
        changed = SimpleNamespace(calls=calls, name=transfer.name)
        checked.launch(env, form, [changed], [atomic], 0, None, None, 1, 0, 1)
    first, second, third = ([each for each in launch if isinstance(each, str)] for launch in kernel.launches)
    assert len(first) == 1 and first == third != second
