"""The host side with nccl as the only backend."""

from __future__ import annotations

import pytest

from harness import devices
from harness.ranks import RankGroup

REASON = devices.known("cuda").missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"needs a CUDA GPU: {REASON}")


def test_host_side():
    options = {"backend": "nccl", "device": "cuda", "arch": "sm_90"}
    with RankGroup(2, setup="tests.gpu.nccl_targets:setup", options=options) as group:
        told = group.call("tests.gpu.nccl_targets:host_side", deadline=120)
    for rank, (backend, values, sent, number, error, device) in enumerate(told):
        assert "gloo" not in backend
        assert values == [rank] * 4
        assert sent == {"from": 1}
        assert number == 2.5
        assert error == "MemoryError"
        assert device == f"cuda:{rank}"
