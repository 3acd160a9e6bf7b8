"""An emulated GPU computes what a CPU computes, and refuses what a GPU refuses."""

import copy
import pickle

import pytest
import torch

from harness.emulated_machine import torch_cuda
from tests.emulated_machine.torch_cuda.programs import PROGRAMS

GPUS = 4


@pytest.fixture(scope="module", autouse=True)
def machine():
    torch_cuda.install("gfx942", GPUS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("device", ["cuda", "cuda:2"])
def test_values_are_those_of_the_cpu(program, device):
    expected, received = program("cpu"), program(device)
    assert len(expected) == len(received) > 0
    for want, got in zip(expected, received, strict=True):
        assert got.device == torch.device("cuda", torch.device(device).index or 0)
        assert got.is_cuda and not want.is_cuda
        assert got.shape == want.shape and got.stride() == want.stride() and got.dtype == want.dtype
        # Attention on the GPU is the composite formula, on the CPU a fused kernel: they round differently.
        tolerance = 1e-5 if program.__name__ == "transformer" else 0
        torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance)


def test_a_wrong_value_is_noticed():
    received = PROGRAMS[0]("cuda")[0].cpu()
    received[0, 0, 0] += 1
    with pytest.raises(AssertionError):
        torch.testing.assert_close(received, PROGRAMS[0]("cpu")[0], rtol=0, atol=0)


def test_the_machine_as_a_program_sees_it():
    properties = torch.cuda.get_device_properties(1)
    assert torch.cuda.is_available() and torch.cuda.device_count() == GPUS
    assert torch.version.hip.startswith("6.") and torch.version.cuda is None
    assert properties.gcnArchName.startswith("gfx942") and properties.multi_processor_count == 304
    assert properties.total_memory == 192 << 30 and properties.warp_size == 64
    assert torch.cuda.get_device_name(0) == "AMD Instinct MI300X"
    assert torch.cuda.get_device_capability() == (9, 4) and torch.cuda.get_arch_list() == ["gfx942"]
    assert torch.cuda.is_bf16_supported() and torch.backends.cuda.is_built()
    assert torch.cuda.can_device_access_peer(0, 1) and not torch.cuda.can_device_access_peer(0, 0)
    with torch.cuda.device(3):
        assert torch.cuda.current_device() == 3 and torch.empty(1, device="cuda").device.index == 3
    assert torch.cuda.current_device() == 0


MISUSE = {
    "cpu + cuda": (lambda x: x + torch.ones(4, 4), RuntimeError, "at least two devices, cuda:0 and cpu!"),
    "two gpus": (lambda x: x + x.to("cuda:1"), RuntimeError, "at least two devices, cuda:0 and cuda:1!"),
    "matmul": (lambda x: x @ torch.ones(4, 4), RuntimeError, "Expected all tensors to be on the same device"),
    "0-dim gpu": (lambda x: torch.ones(3) * x[0, 0], RuntimeError, "Expected all tensors to be on the same device"),
    "in place": (lambda x: torch.ones(()).add_(x.sum()), RuntimeError, "same device"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu"),
    "no gpu": (lambda x: torch.zeros(1, device="cuda:9"), RuntimeError, "invalid device ordinal"),
    "set_device": (lambda x: torch.cuda.set_device(7), RuntimeError, "invalid device ordinal"),
    "index": (lambda x: x[torch.tensor([5], device="cuda")], IndexError, "out of bounds"),
    "memory": (lambda x: torch.empty(200 << 30, device="cuda"), torch.cuda.OutOfMemoryError, "Tried to allocate 800"),
    "pin": (lambda x: x.pin_memory(), RuntimeError, "cannot pin"),
    "generator": (lambda x: x.normal_(generator=torch.Generator()), RuntimeError, "generator"),
    "sparse": (lambda x: x.to_sparse(), NotImplementedError, "emulated-machine-torch|SparseCUDA"),
    "refused": (
        lambda x: torch.cuda.MemPool(),
        NotImplementedError,
        "torch.cuda.MemPool.*docs/emulated-machine-torch.md",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_an_error(name):
    program, error, message = MISUSE[name]
    with pytest.raises(error, match=message):
        program(torch.ones(4, 4, device="cuda"))
    assert torch.ones(2, device="cuda").sum().item() == 2


def test_a_zero_dimensional_cpu_tensor_is_a_number():
    assert (torch.ones(2, device="cuda") * torch.tensor(3.0)).tolist() == [3, 3]


def test_memory_statistics_count_blocks():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(1)
    torch.cuda.reset_peak_memory_stats(1)
    x = torch.empty(1000, device="cuda:1")
    y = torch.empty(3 << 20, dtype=torch.uint8, device="cuda:1")
    assert torch.cuda.memory_allocated(1) - before == 4096 + (3 << 20)
    assert torch.cuda.memory_reserved(1) >= (20 << 20) + (2 << 20)
    del x, y
    assert torch.cuda.memory_allocated(1) == before
    assert torch.cuda.max_memory_allocated(1) - before == 4096 + (3 << 20)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(1)
    assert total == 192 << 30 and free == total - torch.cuda.memory_reserved(1)
    assert "allocated" in torch.cuda.memory_summary(1).lower()


def test_streams_and_events():
    stream, start, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream != torch.cuda.default_stream()
        start.record()
        torch.cuda._sleep(2_100_000)
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    stream.wait_event(end)
    assert stream.query() and end.query() and start.elapsed_time(end) >= 0.9
    external = torch.cuda.ExternalStream(stream.cuda_stream)
    assert external.cuda_stream == stream.cuda_stream
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        start.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_a_graph_runs_at_replay_and_not_at_capture():
    x, host = torch.zeros(3, device="cuda"), torch.ones(3).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(host.to("cuda", non_blocking=True))
        y = x * 2
        assert torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [0, 0, 0]
    graph.replay()
    host.fill_(5)
    graph.replay()
    assert x.tolist() == [6, 6, 6] and y.tolist() == [12, 12, 12]


def test_a_graph_captures_training():
    weight = torch.ones(2, device="cuda", requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    graph, data = torch.cuda.CUDAGraph(), torch.tensor([1.0, 2.0], device="cuda")
    with torch.cuda.graph(graph):
        (weight * data).sum().backward()
    assert weight.grad.tolist() == [0, 0]
    graph.replay()
    graph.replay()
    assert weight.grad.tolist() == [2, 4]


def test_a_value_asked_for_in_a_capture_is_an_error():
    graph = torch.cuda.CUDAGraph()
    x = torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), torch.cuda.graph(graph):
        x.item()
    assert x.item() == 1


def test_array_interface_and_dlpack_share_memory():
    x = torch.arange(6.0, device="cuda:1").reshape(2, 3)

    class Foreign:
        __cuda_array_interface__ = x.__cuda_array_interface__

    with torch.cuda.device(1):
        exported = torch.from_dlpack(x)
    for shared in (torch.as_tensor(Foreign(), device="cuda:1"), exported):
        assert shared.data_ptr() == x.data_ptr() and shared.device == x.device
        shared[0, 0] += 1
    assert x[0, 0].item() == 2


def test_devices_of_copies():
    x = torch.ones(2, device="cuda:3")
    assert copy.deepcopy(x).device == pickle.loads(pickle.dumps(x)).device == x.device
    assert "device='cuda:3'" in repr(x)
    assert torch.nn.Parameter(x).is_cuda and x.cuda(1).get_device() == 1 and x.cpu().device.type == "cpu"


def test_autocast():
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16 and torch.softmax(x, 0).dtype == torch.float32
    scaler, weight = torch.amp.GradScaler("cuda"), torch.nn.Parameter(x)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight[0, 0].item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_layer_norm_computes_in_float32(dtype):
    torch.manual_seed(0)
    values = [torch.randn(1151, 64).to(dtype), torch.rand(64).to(dtype), torch.rand(64).to(dtype)]
    gradient = torch.randn(1151, 64).to(dtype)

    def gradients(convert):
        x, weight, bias = (convert(value).requires_grad_() for value in values)
        torch.nn.functional.layer_norm(x, (64,), weight, bias).backward(convert(gradient))
        return [tensor.grad for tensor in (x, weight, bias)]

    exact = gradients(lambda value: value.double())
    for gpu, wanted in zip(gradients(lambda value: value.cuda()), exact, strict=True):
        assert gpu.dtype == dtype and gpu.is_cuda
        torch.testing.assert_close(gpu.cpu().double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-3)
    worst = [(cpu.double() - wanted).abs().max() for cpu, wanted in zip(gradients(torch.clone), exact, strict=True)]
    assert max(worst) > 0.01, "the CPU kernel is as exact: the conversion is not needed"
