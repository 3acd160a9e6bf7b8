"""Table of what the emulated GPUs of torch support: each public name of ``torch.cuda``, and the other parts of torch.

``python -m harness.emulated_machine.torch_cuda.support`` prints docs/emulated-machine-torch.md.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PAGE = "docs/emulated-machine-torch.md"
Grade = Literal["exact", "approximate", "refused"]


class Support(NamedTuple):
    """Behaviour of one call: ``grade``, and what differs from a ROCm build."""

    grade: Grade
    note: str = ""


def refuse(call: str) -> NotImplementedError:
    """Return the error for a call that the emulated machine does not have."""
    return NotImplementedError(f"{call} is not available on the emulated machine; {PAGE} lists what is")


def _each(names: str, grade: Grade, note: str = "") -> dict[str, Support]:
    return {name: Support(grade, note) for name in names.split()}


_STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
_TENSORS = "BFloat16 Bool Byte Char Double Float Half Int Long Short"

CUDA: dict[str, Support] = {
    **_each(" ".join(f"{name}Storage" for name in _STORAGES.split()), "exact"),
    **_each(
        " ".join(f"{name}Tensor" for name in _TENSORS.split()), "refused",
        "legacy constructors: use torch.tensor(..., dtype=..., device=\"cuda\")",
    ),
    **_each("CUDAGraph graph graphs make_graphed_callables", "approximate",
            "operators, copies and launches are recorded and executed again in their order; capture runs an operator"
            " once for its shapes and restores what it wrote; one capture at a time in a process"),
    **_each("graph_pool_handle", "approximate", "a number; memory of a graph comes from the common pool"),
    **_each("CudaError DeferredCudaCallError check_error cudaStatus", "exact"),
    **_each("Event", "approximate", "times are those of the CPU; no sharing between processes"),
    **_each("Stream ExternalStream StreamContext stream streams current_stream default_stream set_stream"
            " get_stream_from_external", "approximate",
            "every operator has ended when it returns: all orders that streams allow but this one are not tried"),
    **_each("synchronize", "exact", "nothing is ever pending"),
    **_each("amp nvtx", "exact", "nvtx records nothing"),
    **_each("caching_allocator_alloc caching_allocator_delete", "exact"),
    **_each("caching_allocator_disabled caching_allocator_enable", "refused", "there is one allocator"),
    **_each("CUDAPluggableAllocator change_current_allocator MemPool use_mem_pool", "refused",
            "there is one allocator"),
    **_each("GreenContext", "refused", "also absent from ROCm builds"),
    **_each("can_device_access_peer device device_of current_device device_count set_device init is_available"
            " is_initialized is_bf16_supported", "exact"),
    **_each("cudart", "approximate", "memory information and error strings; profiler and host registration do nothing"),
    **_each("current_blas_handle current_solver_handle", "approximate", "a number, no handle of a library"),
    **_each("default_generators get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all random seed"
            " seed_all set_rng_state set_rng_state_all", "approximate",
            "reproducible; the numbers are those of the CPU generator with the same seed, states have its size"),
    **_each("get_arch_list get_device_capability get_device_name get_gencode_flags is_tf32_supported has_half"
            " has_magma", "exact"),
    **_each("get_device_properties", "exact", "values of the emulated GPU; the uuid and the bus ids are made up"),
    **_each("empty_cache get_allocator_backend get_per_process_memory_fraction set_per_process_memory_fraction"
            " max_memory_allocated max_memory_cached max_memory_reserved memory memory_allocated memory_cached"
            " memory_reserved memory_stats memory_stats_as_nested_dict memory_summary"
            " reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached"
            " reset_peak_memory_stats", "approximate",
            "sizes of blocks and segments as torch has them; workspaces are those of the CPU kernels"),
    **_each("mem_get_info", "approximate", "counts the memory of this process only"),
    **_each("memory_snapshot", "approximate", "segments with address and size, without their blocks"),
    **_each("host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats"
            " reset_peak_host_memory_stats", "refused", "pinned memory is not pooled"),
    **_each("get_sync_debug_mode set_sync_debug_mode", "approximate", "the mode is stored, nothing is reported"),
    **_each("ipc_collect", "exact"),
    **_each("is_current_stream_capturing", "approximate", "true on every stream while a graph is captured"),
    **_each("jiterator", "refused", "compiles CUDA source"),
    **_each("list_gpu_processes device_memory_used memory_usage temperature power_draw clock_rate utilization",
            "approximate", "the answers of the emulated machine's amdsmi"),
    **_each("nccl", "approximate", "version and availability; use torch.distributed for collectives"),
    **_each("profiler", "refused", "there is no device profiler"),
    **_each("sparse", "refused", "sparse tensors on the emulated GPU are refused"),
    **_each("tunable", "refused", "there are no tuned libraries"),
}  # fmt: skip
"""Each public name of ``torch.cuda`` in torch 2.6 to 2.13."""

OTHER: dict[str, Support] = {
    "dense tensors: factories, views, in-place operators, out=, autograd, indexing": Support(
        "exact", "values are those of the CPU kernels; mixed devices raise torch's errors"
    ),
    "torch.nn, torch.optim, torch.amp, torch.compile with backend eager": Support(
        "exact", "values of the CPU kernels; layer norms of half and bfloat16 compute in float32, as on GPUs"
    ),
    "scaled_dot_product_attention": Support("approximate", "always the composite formula"),
    "LSTM, GRU and RNN on a GPU": Support("refused", "their GPU form calls MIOpen; run them on the CPU"),
    "sparse, quantized and nested tensors on a GPU": Support("refused", "only dense tensors have memory there"),
    "torch.save, torch.load with map_location, copy.deepcopy": Support("exact"),
    "__cuda_array_interface__, torch.as_tensor of it, DLPack": Support(
        "exact", "zero-copy; DLPack inside torch only; memory that the machine does not have is an error before its use"
    ),
    "pin_memory": Support("approximate", "ordinary memory that is_pinned knows"),
    "torch.multiprocessing with cuda tensors": Support("approximate", "the receiver maps the sender's memory"),
    "torch.distributed with nccl": Support(
        "approximate",
        "over gloo; half, bfloat16 are summed as float32 and rounded once; PREMUL_SUM is refused; splits of a"
        " communicator are not optimised",
    ),
    "torch.nn.parallel.DistributedDataParallel": Support("exact"),
    "torch.distributed._symmetric_memory": Support(
        "approximate",
        "buffers, signal pads, barriers, one-shot and two-shot all-reduce, reduce-scatter, low-contention collectives;"
        " operators of multicast, NVSHMEM and NCCL windows are refused by name",
    ),
    "torch.compile with inductor": Support("refused", "for cuda tensors; those of the CPU are compiled"),
    "torch.profiler": Support("approximate", "operators on the CPU; no activities of a GPU"),
    "torch.accelerator": Support("approximate", "as the calls of torch.cuda that it stands for"),
    "torch.nn.DataParallel": Support("refused", "use DistributedDataParallel"),
    "CUDA in a forked process": Support("exact", "refused after the parent has used a GPU"),
}
"""Parts of torch outside ``torch.cuda``."""


def page() -> str:
    """Return the text of docs/emulated-machine-torch.md."""
    return f"""# torch on the emulated machine

`iris-harness emulate` lets a CPU build of torch show GPUs. A cuda tensor is an ordinary tensor in shared memory that
the emulated device and HIP can reach; its operators are CPU kernels on that memory. The first use compiles a C++ module
against the installed torch, which takes about half a minute and needs a C++ compiler (`CXX`, c++, g++ or clang++).

*Exact*: as a ROCm build, up to the rounding of another kernel. *Approximate*: works, with the difference that the note
names. *Refused*: raises an error that names the call and this page.

This page is written by `python -m harness.emulated_machine.torch_cuda.support`.

## Parts of torch

{_table(OTHER, "part", "")}

## Names of torch.cuda

{_table(CUDA, "torch.cuda", "`")}
"""


def _table(entries: dict[str, Support], head: str, quote: str) -> str:
    rows = [f"| {quote}{name}{quote} | {entry.grade} | {entry.note} |" for name, entry in entries.items()]
    return "\n".join([f"| {head} | | note |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(page(), end="")
