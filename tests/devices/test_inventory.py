"""Inventory on every kind of machine, with the answers of its child process there, and the child on this machine."""

from __future__ import annotations

import sys

import pytest
import torch

from harness import devices
from harness.devices import inventory, launches, probe
from harness.devices.gpu_kind import GpuInfo
from harness.errors import HarnessError, UsageError
from tests.devices import fakes


@pytest.fixture(autouse=True)
def _no_masks(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(monkeypatch):
    """Set the answer of the inventory's child process."""

    def become(facts):
        monkeypatch.setattr(inventory, "_facts", lambda: facts)

    return become


def refusal(call, *arguments, **keywords) -> str:
    with pytest.raises(UsageError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value), "one line"
    return str(caught.value)


def test_gpus_as_the_child_tells_them(machine):
    machine(fakes.facts(fakes.gpus(2)))
    first, second = inventory.visible("cuda")
    assert first == GpuInfo(0, "NVIDIA H200", "sm_90", 141 << 30, "GPU-fake-0", "0000:1b:00.0", (1,), "cuda")
    assert (second.index, second.peers) == (1, (0,))
    assert devices.get("cuda", ranks=2).arch == "sm_90"


def test_a_part_of_a_gpu_keeps_the_id_it_was_chosen_by(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " MIG-6f8 ")
    machine(fakes.facts(fakes.gpus(1)))
    assert inventory.visible("cuda")[0].uuid == "MIG-6f8"


CUDA = [
    ({"torch": None}, "the package torch is not installed: install its CUDA build"),
    (
        {"failed": "OSError: libcudart.so.13"},
        "torch does not import (OSError: libcudart.so.13): install its CUDA build",
    ),
    ({"torch": "2.13.0+cpu", "cuda": None}, "torch 2.13.0+cpu is not a CUDA build: install torch from the CUDA wheel"),
    (fakes.ROCM, "torch 2.11.0+rocm7.2 is not a CUDA build"),
    ({"library": False, "driver": False}, "there is no NVIDIA driver: install it"),
    (
        {"library": False},
        "the NVIDIA driver is there but not its library libcuda.so.1: start the container with --gpus",
    ),
    ({"driver": False}, "libcuda.so.1 is there but no NVIDIA driver: start the container with --gpus all"),
    (
        {"error": "RuntimeError: driver too old"},
        "no NVIDIA GPU is visible (RuntimeError: driver too old): see the",
    ),
    ({}, "no NVIDIA GPU is visible: see the output of nvidia-smi"),
]
AMD = [
    ({"torch": None}, "the package torch is not installed: install its ROCm build"),
    (
        {"failed": "ImportError: libamdhip64.so.7"},
        "torch does not import (ImportError: libamdhip64.so.7): install i",
    ),
    ({"torch": "2.13.0+cpu", "hip": None}, "torch 2.13.0+cpu is not a ROCm build"),
    (
        {"kfd": False, "permission": False},
        "there is no AMD driver (/dev/kfd): load amdgpu, or start the container with",
    ),
    ({"permission": False}, "/dev/kfd may not be opened: add the user to its group (render)"),
    (
        {"error": "RuntimeError: No HIP GPUs are available"},
        "no AMD GPU is visible (RuntimeError: No HIP GPUs are a",
    ),
]


@pytest.mark.parametrize(
    ("device", "facts", "reason"),
    [("cuda", fakes.facts(**changes), reason) for changes, reason in CUDA]
    + [("rocm", fakes.facts(**{**fakes.ROCM, **fakes.KFD, **changes}), reason) for changes, reason in AMD],
)
def test_what_is_missing_is_named_with_its_remedy(machine, device, facts, reason):
    machine(facts)
    assert refusal(inventory.visible, device).startswith(reason)
    assert refusal(devices.get, device).startswith(f"device {device} cannot be used here: {reason}")


@pytest.mark.parametrize(
    ("device", "variable", "facts"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES", fakes.facts()),
        ("rocm", "HIP_VISIBLE_DEVICES", fakes.facts(**fakes.ROCM, **fakes.KFD)),
        ("rocm", "ROCR_VISIBLE_DEVICES", fakes.facts(**fakes.ROCM, **fakes.KFD)),
    ],
)
def test_a_mask_that_hides_everything_is_named(machine, monkeypatch, device, variable, facts):
    machine(facts)
    monkeypatch.setenv(variable, "99")
    assert f"GPU is visible with {variable}='99': name GPUs that exist" in refusal(inventory.visible, device)


def test_gpus_of_another_arch(machine):
    machine(fakes.facts(fakes.gpus(2, arch="sm_80", name="NVIDIA A100")))
    assert refusal(devices.get, "cuda") == (
        "device cuda cannot be used here: the visible GPUs are NVIDIA A100 (sm_80), not sm_90: name another --arch, or"
        " choose GPUs with CUDA_VISIBLE_DEVICES"
    )


def test_more_ranks_than_gpus(machine):
    machine(fakes.facts(fakes.gpus(2)))
    assert refusal(devices.get, "cuda", ranks=3) == (
        "3 ranks need as many GPUs and 2 are visible: use fewer --ranks, or name more GPUs in CUDA_VISIBLE_DEVICES"
        " (certify and pytest can let ranks share a GPU: --ranks-per-gpu 2)"
    )


def test_ranks_that_share_gpus(machine):
    """5 ranks, 2 on each GPU, need 3 GPUs. Ranks on one GPU need no peer access, and use gloo: nccl refuses them."""
    machine(fakes.facts(fakes.gpus(2)))
    shared = devices.get("cuda", ranks=4, ranks_per_gpu=2)
    assert shared.backend == "cpu:gloo,cuda:gloo" and devices.get("cuda", ranks=2).backend == "cpu:gloo,cuda:nccl"
    assert refusal(devices.get, "cuda", ranks=5, ranks_per_gpu=2) == (
        "5 ranks need 3 GPUs with 2 on each and 2 are visible: use fewer --ranks, or name more GPUs in"
        " CUDA_VISIBLE_DEVICES, or use --ranks-per-gpu 3"
    )
    assert (
        refusal(devices.get, "emulated", ranks_per_gpu=2)
        == "device emulated has no GPUs that 2 ranks could share: use 1 rank per GPU"
    )
    machine(fakes.facts([{**gpu, "peers": []} for gpu in fakes.gpus(2)]))
    assert devices.get("cuda", ranks=8, ranks_per_gpu=8).arch == "sm_90"
    assert "no peer access" in refusal(devices.get, "cuda", ranks=9, ranks_per_gpu=8)


def test_a_rank_takes_its_gpu_in_turn(monkeypatch):
    """5 ranks on 2 GPUs, 3 on each: 0, 1, 0, 1, 0, as the library under test has it; a 7th rank does not fit."""
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(launches, "install", lambda: None)
    for rank in range(5):
        devices.known("cuda", ranks_per_gpu=3).activate(rank)
    assert taken == [0, 1, 0, 1, 0]
    with pytest.raises(HarnessError, match="rank 6 of this node has no GPU"):
        devices.known("cuda", ranks_per_gpu=3).activate(6)
    with pytest.raises(HarnessError, match="rank 2 of this node has no GPU"):
        devices.known("cuda").activate(2)


def test_mixed_architectures(machine):
    mixed = [*fakes.gpus(1), {**fakes.gpus(2, arch="sm_80", name="NVIDIA A100")[1], "peers": [0]}]
    machine(fakes.facts(mixed))
    assert refusal(devices.get, "cuda") == (
        "the GPUs are of several architectures: 0 (NVIDIA H200, sm_90, 0000:1b:00.0), 1 (NVIDIA A100, sm_80,"
        " 0000:1c:00.0): choose one kind with CUDA_VISIBLE_DEVICES"
    )


def test_no_peer_access(machine):
    apart = fakes.gpus(3, arch="gfx942", name="AMD Instinct MI300X", device="rocm")
    apart[2]["peers"] = [0]
    machine(fakes.facts(apart, **fakes.ROCM, **fakes.KFD))
    assert refusal(devices.get, "rocm", ranks=2) == (
        "GPU 2 (AMD Instinct MI300X, gfx942, 0000:1d:00.0) has no peer access to GPU 1 (AMD Instinct MI300X, gfx942,"
        " 0000:1c:00.0): choose GPUs that have it with HIP_VISIBLE_DEVICES"
    )
    assert devices.get("rocm", ranks=1).name == "rocm", "one rank needs no peer"


def test_handing_over():
    gpus = fakes.infos(8)
    try:
        inventory.adopt("cuda", inventory.to_plain(gpus))
        assert inventory.visible("cuda") == gpus
    finally:
        inventory._adopted.clear()


def test_noise_on_stdout_is_no_answer():
    noise = b"libamd_smi: cannot open\nMARK-less line"
    assert inventory.read_answer(noise + fakes.answer(fakes.facts()) + b"bye\n", b"", 0) == fakes.facts()


@pytest.mark.parametrize(
    ("stderr", "status", "reason"),
    [(b"first\nlast words\n", 1, "status 1: last words"), (b"", -11, "signal 11: without output")],
)
def test_a_child_that_dies_is_an_answer(machine, stderr, status, reason):
    machine(inventory.read_answer(b"some noise\n", stderr, status))
    assert refusal(inventory.visible, "cuda") == f"torch's query for GPUs ended its process with {reason}"


def test_a_child_that_hangs_is_an_answer(machine, monkeypatch):
    monkeypatch.setattr(inventory, "LIMIT", 0.01)
    assert inventory._facts.__wrapped__() == {
        "broken": "torch's query for GPUs took longer than 0.01 s: check the driver"
    }


def test_the_real_child_answers_and_nothing_is_started_here():
    """Also on machines with GPUs: this process has imported no torch for it, or at least not started its CUDA."""
    facts = inventory._facts.__wrapped__()
    assert set(facts) == set(fakes.facts()) and facts["torch"], facts
    assert "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized()


def test_the_child_keeps_its_answer_apart_from_what_libraries_print(capfd, monkeypatch):
    def noisy():
        probe.os.write(1, b"printed by a library")
        return {"gpus": []}

    monkeypatch.setattr(probe, "facts", noisy)
    monkeypatch.setattr(probe.os, "_exit", lambda status: None)
    saved = probe.os.dup(1)
    try:
        probe.main()
    finally:
        probe.os.dup2(saved, 1)
        probe.os.close(saved)
    output = capfd.readouterr()
    assert output.out == f'\n{probe.MARK}{{"gpus": []}}\n' and "printed by a library" in output.err
