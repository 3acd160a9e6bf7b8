"""Mode check reports nothing about correct kernels: one of each kind of the corpus."""

import importlib
import pkgutil

import pytest

import tests.corpus
from harness import emulator
from tests.corpus.case import CASES

for module in pkgutil.iter_modules(tests.corpus.__path__, "tests.corpus."):
    if not module.name.rsplit(".", 1)[1].startswith(("test_", "conftest", "case")):
        importlib.import_module(module.name)

NAMES = (
    "atomic_slots-add-bfloat16", "spin_lock-4", "segmented_reduction", "attention_forward-True-100-32-2-2",
    "device_print", "gluon_transpose-float16-8-4", "gluon_async_copy-True-4", "gluon_buffer_operations-float32-4-True",
    "matmul_pipelined-3", "matmul_split_k-float16", "layer_norm_forward-float16-1", "cumsum-int32-1-True-8",
    "softmax_one_pass-float32-200-4", "sort-float16-False-2", "histogram-16-4", "casts-bf16-fp32",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_clean(name):
    (case,) = (case for case in CASES if case.name == name)
    emulator.activate(case.archs[0], mode="check")
    try:
        case.check()
    finally:
        emulator.deactivate()
