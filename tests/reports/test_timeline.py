"""Time, topology and listings on the page."""

from __future__ import annotations

import dataclasses

import pytest

from harness.evidence import Verdict, read
from reports import render_html
from reports.listings import marked
from reports.timeline import HEIGHT, WIDTH, areas_of, timeline_of
from reports.topology import topology_of
from tests.evidence import samples
from tests.evidence.samples import GPUS


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def measured(count):
    """Return a run in which each of three cases is measured again and again, one second each; the last failed."""
    records = samples.on_gpus()[:-3]
    cases = [samples.case(1), samples.case(2), samples.case(3, requirement=samples.ADD)]
    windows = []
    for number in range(count):
        case = cases[number % 3]
        window = samples.telemetry(
            case,
            bracket=[100.0 + number, 101.0 + number],
            gauges={"power": [100.0, 100.0 * (1 + number % 7)]},
            deltas={"link_tx": 5e9},
            unavailable={},
        )
        windows.append(dataclasses.replace(window, cases={case.id: (100.2 + number, 100.7 + number)}))
    return [*records, samples.hardware(), *windows, samples.end()]


def test_each_gpu_has_its_curves_on_the_axis_of_the_cases(tmp_path):
    timeline = timeline_of(evidence_of(tmp_path, measured(4)))
    assert timeline.seconds == pytest.approx(4)
    assert [each.gpu for each in timeline.gpus] == list(GPUS)
    power, sent = timeline.gpus[0].curves
    assert (power.name, power.high, sent.name, sent.high) == ("Power", "400 W", "Links, sent", "5 GB/s")
    assert [x for x, *_ in power.bars] == [0, 250, 500, 750]
    assert power.bars[3][3] == HEIGHT * 3 / 4, "from 100 to 400 of 400 W"
    assert [x for x, _, _ in timeline.cases] == [50, 300, 550, 800]


def test_a_failing_case_is_seen_in_a_bin_with_others(tmp_path):
    evidence = evidence_of(tmp_path, measured(3000))
    last = next(case for case in evidence.cases if case.id == samples.case(2).id)
    evidence.cases = [
        dataclasses.replace(case, verdict=Verdict.FAIL) if case is last else case for case in evidence.cases
    ]
    timeline = timeline_of(evidence)
    assert len(timeline.cases) <= WIDTH and len(timeline.gpus[0].curves[0].bars) <= WIDTH
    assert {verdict for _, _, verdict in timeline.cases} == {Verdict.FAIL}


def test_without_samples_there_is_no_timeline(tmp_path):
    assert timeline_of(evidence_of(tmp_path, samples.green())) is None
    reason = samples.telemetry(samples.case(1), reason="no driver")
    assert timeline_of(evidence_of(tmp_path, [*samples.green()[:-1], reason, samples.end()])) is None


def test_areas_are_sorted_by_their_time(tmp_path):
    put, add = areas_of(evidence_of(tmp_path, samples.green()))
    assert (put.name, put.cases, put.seconds, put.time_share) == ("RMA", 2, 0.5, 100)
    assert (add.name, add.cases, add.share, add.time_share) == ("ATOMIC", 1, 50, 50)


def test_links_are_drawn_once(tmp_path):
    records = samples.on_gpus()
    gpus = {gpu: {"name": "H200", "topology": {GPUS[1 - place]: {"level": 20}}} for place, gpu in enumerate(GPUS)}
    records[-4] = dataclasses.replace(samples.hardware(), gpus=gpus)
    evidence = evidence_of(tmp_path, records)
    topology = topology_of(evidence)
    assert [(link.first.number, link.second.number, link.kind) for link in topology.links] == [(0, 1, "level 20")]
    page = render_html(evidence)
    assert "1 link: level 20" in page and page.count("<line ") == 1
    assert topology_of(evidence_of(tmp_path, samples.on_gpus())) is None


LISTING = """\
\t.loc\t1 10 5 ; local.py:10:5
\tglobal_store_dwordx4 v[0:1], v[2:5], off
\t.loc\t2 25 12 ; address.py:25:12 @[ <b> ]
\tglobal_store_dwordx4 v[0:1], v[2:5], off
\tglobal_store_dwordx4 v[0:1], v[2:5], off sc1
\ts_endpgm ; global_store_dwordx4
"""


def test_remote_accesses_are_marked_and_nothing_else():
    access = {"mnemonic": "global_store_dwordx4", "bits": [], "source": "/a/address.py:25:12 @ b.py:1:2", "width": 16}
    text = str(marked(LISTING, [access]))
    assert text.count("<mark>") == 2
    assert "&lt;b&gt;" in text and "<b>" not in text
    assert text.index("<mark>") > text.index("address.py:25:12")
    [line] = [line for line in str(marked(LISTING, [{**access, "bits": ["sc1"]}])).split("\n") if "<mark>" in line]
    assert "sc1" in line
    assert "<mark>" not in marked(LISTING, [])


def test_a_listing_names_no_folder_of_the_machine_that_compiled_it():
    listing = (
        '\t.file\t1 "/builds/someone/project" "kernels.py"\n\tbuffer_load v1 ; /builds/some-one/deep/address.py:25:12\n'
    )
    text = str(marked(listing + "\tv_div v1, v2 ; a / b\n", []))
    assert "builds" not in text and "some-one" not in text and "address.py:25:12" in text and "a / b" in text


def test_the_page_shows_a_listing_that_it_is_given(tmp_path):
    kernel = samples.kernel()
    access = {"mnemonic": "global_store_dwordx4", "bits": [], "width": 16, "source": "a.py:25:12", "count": 2}
    records = samples.green()
    records[2] = dataclasses.replace(kernel, fingerprint={**kernel.fingerprint, "remote_accesses": [access]})
    evidence = evidence_of(tmp_path, records)
    without, page = render_html(evidence), render_html(evidence, {kernel.hash: LISTING})
    assert "2 remote accesses" in without and "This page does not have the listing" in without
    assert page.count("<mark>") == 2 and "This page does not have the listing" not in page
