"""The table of support is complete, and its page is the table's; a build of torch for GPUs is refused."""

from pathlib import Path

import pytest
import torch

from harness.emulated_machine.torch_cuda import build, support
from harness.errors import MachineError


def test_every_public_name_of_torch_cuda_is_in_the_table():
    assert set(torch.cuda.__all__) - set(support.CUDA) == set()


def test_the_page_is_the_tables():
    assert (Path(__file__).parents[3] / support.PAGE).read_text() == support.page()


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_a_build_for_gpus_is_refused_before_it_is_loaded(kind, tmp_path, monkeypatch):
    """Loading the module would end the process: such a build has registered its own CUDA part."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.version, kind, "13.0")
    with pytest.raises(MachineError, match=r"is a build for GPUs.*install PyTorch's CPU build"):
        build.load()
    assert list(tmp_path.iterdir()) == []
