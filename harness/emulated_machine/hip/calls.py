"""The calls of HIP on the emulated machine: exact, approximate with what differs, or refused.

``CALLS`` holds every function of the HIP headers, ``MATRIX_PRODUCTS`` those of hipBLASLt's C interface. A refused call
returns ``hipErrorNotSupported`` or ``HIPBLAS_STATUS_NOT_SUPPORTED`` and prints one line that names it.
``python -m harness.emulated_machine.hip.calls`` prints docs/emulated-machine-hip.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from harness.emulated_machine.hip.refused import REFUSED

PAGE = "docs/emulated-machine-hip.md"
HIP_NOT_SUPPORTED, BLAS_NOT_SUPPORTED = 801, 7
Status = Literal["exact", "approximate", "refused"]


class Call(NamedTuple):
    """Behaviour of one function: ``status``, and what differs from ROCm."""

    status: Status
    note: str = ""


def _each(names: str, status: Status, note: str = "") -> dict[str, Call]:
    return {name: Call(status, note) for name in names.split()}


_IDLE = "work has ended when the call that submits it returns, so a stream is never busy"

CALLS: dict[str, Call] = {
    **_each(
        "hipInit hipGetDeviceCount hipGetDevice hipCtxGetDevice hipSetDevice hipGetLastError hipExtGetLastError"
        " hipPeekAtLastError"
        " hipGetErrorName hipGetErrorString hipDrvGetErrorName hipDrvGetErrorString hipDeviceGet"
        " hipDeviceComputeCapability hipDeviceGetName hipDeviceGetUuid hipDeviceTotalMem hipDeviceGetPCIBusId"
        " hipDeviceGetByPCIBusId hipGetProcAddress hipDeviceCanAccessPeer hipDeviceEnablePeerAccess"
        " hipDeviceDisablePeerAccess",
        "exact",
    ),
    **_each(
        "hipRuntimeGetVersion hipDriverGetVersion", "exact", "the version of torch.version.hip, whichever the headers'"
    ),
    **_each("hipGetDevicePropertiesR0600 hipDeviceGetAttribute", "approximate",
            "the values of an MI300X or MI350X; texture limits are 0; an unknown attribute is hipErrorInvalidValue"),
    **_each("hipChooseDeviceR0600", "approximate", "device 0: all devices are alike"),
    **_each("hipDeviceGetLimit hipGetDeviceFlags hipSetDeviceFlags", "approximate", "constants; flags change nothing"),
    **_each("hipDeviceGetP2PAttribute hipExtGetLinkTypeAndHopCount", "exact",
            "every GPU has an xGMI link to every other"),
    **_each("hipMalloc hipFree hipMemGetAddressRange hipMemPtrGetInfo hipMallocPitch hipMemAllocPitch", "exact"),
    **_each("hipExtMallocWithFlags", "approximate", "all memory is coherent, whatever the flags"),
    **_each("hipHostMalloc hipHostAlloc hipMallocHost hipMemAllocHost hipHostFree hipFreeHost hipHostRegister"
            " hipHostUnregister hipHostGetDevicePointer hipHostGetFlags", "exact", "nothing is pinned"),
    **_each("hipMallocManaged hipMemPrefetchAsync hipMemAdvise", "approximate", "host and GPUs have one memory"),
    **_each("hipMallocAsync hipMallocFromPoolAsync hipFreeAsync hipDeviceGetDefaultMemPool hipDeviceGetMemPool"
            " hipDeviceSetMemPool hipMemPoolTrimTo", "approximate", "immediate; each device has its default pool only"),
    **_each("hipMemGetInfo", "approximate", "counts the memory of this process only"),
    **_each("hipPointerGetAttributes hipPointerGetAttribute hipDrvPointerGetAttributes", "exact",
            "memory of another process is on the device that opened it"),
    **_each("hipMemcpy hipMemcpyAsync hipMemcpyWithStream hipMemcpyHtoD hipMemcpyDtoH hipMemcpyDtoD hipMemcpyHtoDAsync"
            " hipMemcpyDtoHAsync hipMemcpyDtoDAsync hipMemcpyPeer hipMemcpyPeerAsync hipMemcpy2D hipMemcpy2DAsync",
            "exact", "asynchronous forms have ended when they return"),
    **_each("hipMemset hipMemsetAsync hipMemsetD8 hipMemsetD8Async hipMemsetD16 hipMemsetD16Async hipMemsetD32"
            " hipMemsetD32Async hipMemset2D hipMemset2DAsync", "exact",
            "asynchronous forms have ended when they return"),
    **_each("hipIpcGetMemHandle hipIpcOpenMemHandle hipIpcCloseMemHandle", "exact",
            "between processes of one user and one PID namespace"),
    **_each("hipMemGetHandleForAddressRange", "exact",
            "the descriptor is a memory file of the whole allocation, not a DMA-BUF of the kernel: no NIC accepts it"),
    **_each("hipImportExternalMemory hipExternalMemoryGetMappedBuffer hipDestroyExternalMemory", "exact",
            "opaque descriptors only; the descriptor stays the caller's"),
    **_each("hipMemAddressReserve hipMemAddressFree hipMemCreate hipMemRelease hipMemMap hipMemUnmap"
            " hipMemGetAllocationGranularity hipMemGetAllocationPropertiesFromHandle hipMemRetainAllocationHandle"
            " hipMemExportToShareableHandle", "exact"),
    **_each("hipMemImportFromShareableHandle", "exact",
            "accepts a descriptor by value or by pointer, as ROCm since and before 7.1"),
    **_each("hipMemSetAccess hipMemGetAccess", "approximate",
            "a kernel that writes to read-only memory is not stopped"),
    **_each("hipStreamCreate hipStreamCreateWithFlags hipStreamCreateWithPriority hipStreamDestroy hipStreamQuery"
            " hipStreamSynchronize hipStreamWaitEvent hipStreamGetFlags hipStreamGetPriority hipStreamGetDevice"
            " hipStreamGetId hipDeviceGetStreamPriorityRange hipStreamAddCallback hipLaunchHostFunc"
            " hipDeviceSynchronize", "approximate", _IDLE),
    **_each("hipStreamIsCapturing", "approximate", "never: capture through HIP is refused"),
    **_each("hipEventCreate hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventRecordWithFlags"
            " hipEventSynchronize hipEventQuery hipEventElapsedTime", "approximate", "times are those of the CPU"),
    **_each(REFUSED, "refused"),
}  # fmt: skip


MATRIX_PRODUCTS: dict[str, Call] = {
    **_each("hipblasLtCreate hipblasLtDestroy hipblasLtMatmulDescDestroy hipblasLtMatmulPreferenceCreate"
            " hipblasLtMatmulPreferenceDestroy hipblasLtMatrixLayoutCreate hipblasLtMatrixLayoutDestroy", "exact"),
    **_each("hipblasLtMatmul", "approximate", "float16, bfloat16 and float32, computed in float32 on the CPU; one"
            " product, without an epilogue; it has ended when the call returns"),
    **_each("hipblasLtMatmulAlgoGetHeuristic", "approximate", "one algorithm, which needs no workspace"),
    **_each("hipblasLtMatmulDescCreate", "approximate", "any compute type is float32; the scale type is float32"),
    **_each("hipblasLtMatmulDescSetAttribute", "approximate", "HIPBLASLT_MATMUL_DESC_TRANSA and TRANSB"),
    **_each("hipblasLtMatmulPreferenceSetAttribute", "approximate", "accepted, and without effect"),
    **_each("hipblasLtGetVersion hipblasLtGetGitRevision hipblasLtGetArchName hipblasLtMatmulDescGetAttribute"
            " hipblasLtMatmulPreferenceGetAttribute hipblasLtMatrixLayoutGetAttribute"
            " hipblasLtMatrixLayoutSetAttribute hipblasLtMatrixTransform hipblasLtMatrixTransformDescCreate"
            " hipblasLtMatrixTransformDescDestroy hipblasLtMatrixTransformDescGetAttribute"
            " hipblasLtMatrixTransformDescSetAttribute", "refused"),
}  # fmt: skip


def refused(table: Mapping[str, Call] = CALLS) -> list[str]:
    """Return the names of the refused calls of a table."""
    return [name for name, call in table.items() if call.status == "refused"]


def page() -> str:
    """Return the text of PAGE."""
    lines = [
        "# HIP on the emulated machine",
        "",
        "The functions of `libamdhip64.so` on the [emulated machine](emulated-machine.md). A refused call returns",
        "`hipErrorNotSupported` (801) and prints one line to stderr. A name that is not in this table is not in the",
        "library; `ctypes` raises `AttributeError` for it.",
        "",
        "This page is written by `python -m harness.emulated_machine.hip.calls`.",
    ]
    lines += _sections("##", CALLS)
    lines += [
        "",
        "## Matrix products",
        "",
        "The functions of `libhipblaslt.so`. A refused call returns `HIPBLAS_STATUS_NOT_SUPPORTED` (7) and prints one",
        "line to stderr, and so does a type or an attribute that the table does not name. The C++ interface",
        "`hipblaslt_ext` is absent.",
    ]
    return "\n".join([*lines, *_sections("###", MATRIX_PRODUCTS)]) + "\n"


def _sections(level: str, table: Mapping[str, Call]) -> list[str]:
    lines: list[str] = []
    for status in ("exact", "approximate"):
        lines += ["", f"{level} {status.capitalize()}", "", "| call | difference from ROCm |", "| --- | --- |"]
        notes: dict[str, list[str]] = {}
        for name, call in table.items():
            if call.status == status:
                notes.setdefault(call.note, []).append(f"`{name}`")
        lines += [f"| {', '.join(names)} | {note or 'none'} |" for note, names in notes.items()]
    return [*lines, "", f"{level} Refused", "", ", ".join(f"`{name}`" for name in sorted(refused(table))) + "."]


if __name__ == "__main__":
    print(page(), end="")
