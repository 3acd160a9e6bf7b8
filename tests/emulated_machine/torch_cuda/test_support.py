"""The table of support is complete, and its page is the table's."""

from pathlib import Path

import torch

from harness.emulated_machine.torch_cuda import support


def test_every_public_name_of_torch_cuda_is_in_the_table():
    assert set(torch.cuda.__all__) - set(support.CUDA) == set()


def test_the_page_is_the_tables():
    assert (Path(__file__).parents[3] / support.PAGE).read_text() == support.page()
