"""Filters of case groups, the matrix, and anchors."""

from __future__ import annotations

import dataclasses

from harness.evidence import Requirement, Verdict, read
from reports import render_html, view_of
from reports.facets import NONE, anchor_of, facets_of, matrices_of, options_of
from tests.evidence import samples
from tests.reports import huge


def test_the_values_come_from_the_id_the_form_and_the_parameters():
    known = Requirement("RMA-PUT-002", "put copies", covers=("DeviceContext.put",), form="a method of DeviceContext")
    facets = facets_of("RMA-PUT-002", "RMA-PUT-002[ranks=4,dtype=fp16]", known, "cuda sm_90")
    expected = ("RMA", "put", "methods of DeviceContext", "fp16", "4", "cuda sm_90")
    assert dataclasses.astuple(facets) == expected
    bare = facets_of("HOST-RAW-POINTER-002", "", None, "")
    assert (bare.op, bare.form, bare.dtype) == ("raw-pointer", NONE, NONE)
    assert facets_of("CCL-SUM-001", "CCL-SUM-001[op=all_reduce]", None, "").op == "all_reduce"
    assert facets_of("RMA-PUT-001", "", Requirement("RMA-PUT-001", "", covers=("IrisDeviceCtx.put",)), "").form == (
        "IrisDeviceCtx"
    )
    covering = Requirement("CCL-ALLREDUCE-001", "", covers=("ccl.Config", "ccl.all_reduce"))
    assert facets_of("CCL-ALLREDUCE-001", "CCL-ALLREDUCE-001[dtype=fp16]", covering, "").op == "all_reduce"
    assert facets_of("strange", "strange", None, "").op == "strange"


def test_a_cell_has_the_worst_verdict_and_leads_to_it():
    first, second = (facets_of("RMA-PUT-001", f"RMA-PUT-001[ranks={n},dtype=fp16]", None, "") for n in (2, 4))
    other = facets_of("RMA-PUT-001", "RMA-PUT-001[dtype=int8]", None, "")
    groups = [(first, Verdict.PASS, "a"), (second, Verdict.FAIL, "b"), (other, Verdict.PASS, "c")]
    [matrix] = matrices_of(groups)
    assert (matrix.area, matrix.verdict, matrix.groups, matrix.passed) == ("RMA", Verdict.FAIL, 3, 2)
    assert matrix.dtypes == ("fp16", "int8")
    [row] = matrix.rows
    assert [(cell.verdict, cell.anchor, cell.passed, cell.groups) for cell in row.cells if cell] == [
        (Verdict.FAIL, "b", 1, 2),
        (Verdict.PASS, "c", 1, 1),
    ]


def test_filters_list_numbers_by_value_and_leave_out_single_values():
    every = [facets_of("A-B-1", f"A-B-1[ranks={ranks},dtype={dtype}]", None, "") for ranks, dtype in
             ((8, "fp32"), (10, "fp8"), (2, "fp16"))]  # fmt: skip
    assert options_of(every) == {"ranks": ["2", "8", "10"], "dtype": ["fp8", "fp16", "fp32"]}


def test_anchors_are_the_same_in_each_report_and_hold_no_text_of_the_name():
    assert anchor_of("RMA-PUT-001[dtype=fp16]") == anchor_of("RMA-PUT-001[dtype=fp16]")
    assert anchor_of("\ud800\" onload='x'").removeprefix("group-").isalnum()


def test_the_result_is_a_few_words(tmp_path):
    def glance(records):
        return view_of(read(samples.write(tmp_path / "evidence.jsonl", records))).glance

    assert glance(samples.green()) == "2 of 2 case groups passed"
    assert glance(samples.red()) == "1 cause in 1 of 2 case groups"
    assert glance(samples.green()[:-2]) == "1 of 2 case groups without a pass"


def test_case_ids_are_bounded_on_a_page_of_many_groups():
    evidence = huge.evidence(numbers=1, cases=30)
    rows = [group for row in view_of(evidence).rows for group in row.groups]
    assert {len(group.ids) for group in rows} == {20}
    assert {group.more for group in rows} == {10}
    page = render_html(evidence)
    assert all(page.count(f'id="{group.anchor}"') == 1 for group in rows)
