"""Kernels of NVIDIA GPUs in the report: they have no VGPRs, and their number of registers is not always known."""

import dataclasses

import pytest

from harness import isa
from harness.evidence import Case, Kernel, read
from reports import render_html
from reports.kernels import registers_of, spills_of
from tests.evidence import samples

PTX = """
.version 8.7
.target sm_90a
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	.reg .b64 	%rd<2>;
	ld.param.b64 	%rd1, [kernel_param_0];
	st.global.v4.b32 	[ %rd1 + 0 ], { %r1, %r2, %r3, %r4 };
	ret;
}
"""


@pytest.mark.parametrize(
    ("usage", "registers", "spills"),
    [("", None, None), ("REG:40 STACK:0 SHARED:0 LOCAL:0", 40, 0), ("REG:255 STACK:24 SHARED:0 LOCAL:0", 255, 6)],
)
def test_a_kernel_of_an_nvidia_gpu(tmp_path, usage, registers, spills):
    fingerprint = isa.fingerprint(PTX, usage).to_json()
    assert (registers_of(fingerprint), spills_of(fingerprint)) == (registers, spills)
    records = [
        dataclasses.replace(record, arch="sm_90a", fingerprint=fingerprint) if isinstance(record, Kernel) else record
        for record in samples.green()
    ]
    page = render_html(read(samples.write(tmp_path / "evidence.jsonl", records)))
    assert ("40 registers" in page) == (registers == 40)
    assert ("6 spills" in page) == (spills == 6)
    assert "None" not in page


def test_a_kernel_with_a_minimal_fingerprint(tmp_path):
    """Check a fingerprint with only the three required fields, and a whole number written as 16.0."""
    fingerprint = {"widths": {}, "vgprs": 1, "vgpr_spills": 0}
    ran = {samples.KERNEL: {"launches": 4, "accesses": [{**samples.STORE, "width": 16.0}]}}
    records = [
        dataclasses.replace(record, fingerprint=fingerprint)
        if isinstance(record, Kernel)
        else dataclasses.replace(record, launches=ran)
        if isinstance(record, Case)
        else record
        for record in samples.green()
    ]
    page = render_html(read(samples.write(tmp_path / "evidence.jsonl", records)))
    assert "1 registers" in page and "store 16 B" in page
