"""Sample records for the tests of evidence, reports and commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.evidence import (
    Case,
    Difference,
    End,
    Group,
    Hardware,
    Kernel,
    Plan,
    PlannedGroup,
    Record,
    Requirement,
    Run,
    Store,
    Telemetry,
    Verdict,
    case_id,
)

RUN = "a1b2c3"
PUT, ADD = "RMA-PUT-001", "ATOMIC-ADD-001"
PUT_GROUP, ADD_GROUP = f"{PUT}[ranks=4,dtype=fp16]", f"{ADD}[ranks=4,dtype=int32]"
NODES = {
    PUT: "conformance/rma/test_put.py::test_put[fp16]",
    ADD: "conformance/atomics/test_add.py::test_add[int32]",
}
KERNEL = "f" * 64
STORE = {
    "kind": "store", "width": 16, "where": "remote", "peer": True, "executions": 8, "lanes": 500, "bytes": 8000,
}  # fmt: skip


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": RUN,
        "seed": 20,
        "level": "gate",
        "device": "emulated",
        "arch": "gfx942",
        "ranks": (4,),
        "implementation": {"name": "iris_under_test", "version": "0.1.0", "commit": "0" * 40},
        "environment": {
            "python": "3.11.7",
            "os": "Linux 6 x86_64",
            "cpus": 2,
            "packages": {"torch": "2.13.0+cpu", "triton": "3.9.0", "numba": None},
        },
        "started": "2026-11-21T02:00:00Z",
        "argv": ("iris-harness", "certify"),
    }
    return Run(**{**values, **changes})


def plan() -> Plan:
    return Plan(
        groups=(
            PlannedGroup(PUT_GROUP, PUT, NODES[PUT]),
            PlannedGroup(ADD_GROUP, ADD, NODES[ADD]),
        ),
        requirements=(
            Requirement(PUT, "put copies exactly the masked elements to the peer", "iris_api.md, put", ("put",)),
            Requirement(ADD, "atomic_add returns the old value", "iris_api.md, atomics", ("atomic_add",)),
        ),
    )


def kernel() -> Kernel:
    widths = {
        "local": {"load": {"16": 1}, "store": {}, "atomic": {}},
        "remote": {"load": {}, "store": {"16": 2}, "atomic": {}},
        "unattributed": {"load": {}, "store": {}, "atomic": {}},
    }
    fingerprint = {"widths": widths, "vgprs": 22, "agprs": 0, "sgprs": 15, "vgpr_spills": 0, "sgpr_spills": 0, "lds": 0}
    return Kernel(hash=KERNEL, name="put_kernel", arch="gfx942", fingerprint=fingerprint, listing_sha256="1" * 64)


def case(number: int = 0, *, requirement: str = PUT, verdict: Verdict = Verdict.PASS, **changes: Any) -> Case:
    group = PUT_GROUP if requirement == PUT else ADD_GROUP
    drawn = {"type": "Copy", "fields": {"count": number, "dtype": "fp16"}}
    values: dict[str, Any] = {
        "id": case_id(requirement, group, drawn),
        "requirement": requirement,
        "group": group,
        "nodeid": NODES[requirement],
        "case": drawn,
        "seed": 20,
        "phase": "generate",
        "verdict": verdict,
        "message": "" if verdict is Verdict.PASS else "heap differs",
        "repeat": "iris-harness replay 0123456789abcdef",
        "kernels": (KERNEL,),
        "launches": {KERNEL: {"launches": 4, "accesses": [STORE]}},
        "telemetry": {"source": "emulated", "launches": 4, "instructions": {"valu": 120}, "ranks": 4},
        "timing": {"seconds": 0.25},
    }  # fmt: skip
    return Case(**{**values, **changes})


def failing_case() -> Case:
    return case(
        7,
        requirement=ADD,
        verdict=Verdict.FAIL,
        message="returned value differs",
        differs=Difference(what="old value", rank=3, index=17, got=5, wanted=4),
    )


GPUS = ("GPU-00000000-aaaa", "GPU-11111111-bbbb")


def hardware() -> Hardware:
    return Hardware(
        source="nvml",
        period=0.1,
        fields=("power", "temperature_core", "energy", "ecc_corrected", "throttle_thermal", "link_ecc_errors"),
        library={"nvml": "13.580.0"},
        driver={"version": "580.159"},
        gpus={gpu: {"name": "NVIDIA H200", "vbios": "96.00", "unavailable": {"firmware": "why"}} for gpu in GPUS},
    )


def telemetry(*cases: Case, marks: tuple[str, ...] = (), reason: str = "", **changes: Any) -> Telemetry:
    """Around ``cases``; around none: of the whole run. ``reason``: why there are no samples."""
    samples = {
        "bracket": [1.0, 1.2],
        "samples": 3,
        "gauges": {"power": [71.0, 690.0], "temperature_core": [31, 55]},
        "deltas": {"energy": 6150.0, "ecc_corrected": 0},
        "active": {},
        "unavailable": {"link_ecc_errors": "Not Supported"},
        **changes,
    }
    gpus = tuple(
        {"rank": rank, "gpu": gpu, **({"reason": reason} if reason else samples)} for rank, gpu in enumerate(GPUS)
    )
    return Telemetry("nvml", {case.id: (1.05, 1.1) for case in cases}, gpus, marks)


def on_gpus() -> list[Record]:
    """The run ``green`` on two GPUs with telemetry."""
    _, *rest = green()
    ran = [record for record in rest if isinstance(record, Case)]
    return [run(device="cuda", arch="sm_90"), *rest[:-1], hardware(), telemetry(*ran), telemetry(), rest[-1]]


def end(exit_status: int = 0, **counts: int) -> End:
    return End(exit_status=exit_status, finished="2026-11-21T02:01:00Z", counts=counts)


def green() -> list[Record]:
    """A whole run in which everything passed: two groups of two cases and one case."""
    return [
        run(),
        plan(),
        kernel(),
        case(1),
        case(2),
        Group(PUT_GROUP, PUT, Verdict.PASS, 2),
        case(3, requirement=ADD),
        Group(ADD_GROUP, ADD, Verdict.PASS, 1),
        end(0),
    ]


def red() -> list[Record]:
    """The same run with one failing group."""
    bad = failing_case()
    return [
        *green()[:6],
        bad,
        Group(ADD_GROUP, ADD, Verdict.FAIL, 1, failing_case=bad.id, message="heap differs"),
        end(1),
    ]


def write(path: Path, records: list[Record]) -> Path:
    """A valid file of ``records``, which need not begin with the run; it replaces what is at ``path``."""
    path.unlink(missing_ok=True)
    run_id = next((record.id for record in records if isinstance(record, Run)), RUN)
    worker = re.fullmatch(r".*-(gw\d+)", path.stem)
    with Store(path, run_id, worker[1] if worker else "") as store:
        for record in records:
            store.append(record)
    return path
