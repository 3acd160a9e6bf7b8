"""Tests of gpu_softmax.py as a project for GPUs has them: nothing in them is about emulation.

python -m pytest examples/test_gpu_softmax.py                                           # on a GPU
iris-harness emulate --gpus 1 -- python -m pytest examples/test_gpu_softmax.py          # without one
"""

import gpu_softmax
import pytest
import torch
import triton


@pytest.mark.parametrize("columns", [1, 64, 300])
def test_softmax(columns):
    x = torch.randn(8, columns, device="cuda")
    y = torch.empty_like(x)
    gpu_softmax.softmax[(8,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    torch.testing.assert_close(y, torch.softmax(x, dim=1))
