"""The HTML page: it is complete, loads no external asset, and escapes all text."""

import base64
import hashlib
import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from harness.evidence import Difference, Group, Verdict, read
from reports import render_html
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = "</code><script>alert('x')</script>\x00{{ 7*7 }} & \"quoted\""


def page_of(tmp_path, records):
    return render_html(read(samples.write(tmp_path / "evidence.jsonl", records)))


class Outline(HTMLParser):
    """Parser that collects tags, ids and links, and checks that every element is closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.links, self.text, self._open = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_green_page_has_its_headline_and_figures(tmp_path):
    outline = Outline(page_of(tmp_path, samples.green()))
    text = " ".join("".join(outline.text).split())
    assert "All 2 requirements passed, and everything that was planned ran." in text
    assert "emulated gfx942" in text
    assert "Cases3 Case groups2 Kernels1" in text
    assert "put copies exactly the masked elements to the peer" in text
    assert "store 16 B × 2" in text, "static remote widths"
    assert "store 16 B × 24" in text, "executed remote widths, three cases of eight"
    assert "triton 3.9.0" in text
    assert "Failing groups" not in text
    assert "Gaps" not in text


def test_circumstances_that_could_change_the_run_are_shown(tmp_path):
    """Check that plugins and variables are on the page: they change no verdict, but a reader must see them."""
    package = {"commit": "1234abc+changes", "sha256": "0" * 64}
    circumstances = {"variables": {"TRITON_DEBUG": "1"}, "plugins": {"nosy_plugin": None}, "options": []}
    run = replace(
        samples.run(), harness={"version": "0.2.0", "packages": {"harness": package}}, circumstances=circumstances
    )
    text = " ".join("".join(Outline(page_of(tmp_path, [run, *samples.green()[1:]])).text).split())
    for shown in ("harness at 1234abc+changes", "nosy_plugin", "TRITON_DEBUG=1"):
        assert shown in text


def test_a_failing_case_is_shown_with_its_details(tmp_path):
    bad = samples.failing_case()
    stuck = samples.case(
        9,
        requirement=ADD,
        verdict=Verdict.FAIL,
        message="deadline",
        stacks={"0": "in spin", "1": "in wait"},
        fault="store outside every allocation",
        fault_source="device.py:118:9 @ test_put.py:41:5",
        differs=Difference("old value", 3, 17, 5, 4),
        repeat=bad.repeat,
    )
    records = [*samples.red()[:6], stuck, Group(ADD_GROUP, ADD, Verdict.FAIL, 1, failing_case=stuck.id), samples.end(1)]
    text = " ".join("".join(Outline(page_of(tmp_path, records)).text).split())
    for piece in (
        "rank 3",
        "index 17",
        "got 5",
        "wanted 4",
        "in spin",
        "Stack of rank 1",
        "device.py:118:9",
        bad.repeat,
    ):
        assert piece in text, piece
    assert "count = 9" in text


def test_nothing_comes_from_outside_and_only_the_inline_script_runs(tmp_path):
    page = page_of(tmp_path, samples.red())
    outline = Outline(page)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert html.unescape(policy).split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"(inner|outer|Adjacent)HTML|document\.write|eval|Function\(|fetch|XMLHttp", script)
    assert {tag for tag, _ in outline.tags}.isdisjoint({"link", "img", "iframe", "object", "embed", "form"})
    assert all(link.startswith("#") for link in outline.links)
    assert not re.search(r"url\(|@import|https?:", page)
    assert not any(name.startswith("on") for _, values in outline.tags for name in values)


def test_every_text_is_escaped(tmp_path):
    case = samples.case(
        1,
        requirement=ADD,
        verdict=Verdict.FAIL,
        message=HOSTILE,
        case={"type": "Copy", "fields": {HOSTILE: HOSTILE}},
        differs=Difference(HOSTILE, 1, 2, HOSTILE, HOSTILE),
        stacks={HOSTILE: HOSTILE},
        fault=HOSTILE,
        fault_source=HOSTILE,
        repeat=HOSTILE,
    )
    records = [
        samples.run(implementation={"name": HOSTILE}, argv=(HOSTILE,), level=HOSTILE),
        samples.plan(),
        samples.kernel(),
        case,
        Group(ADD_GROUP, ADD, Verdict.FAIL, 1, failing_case=case.id),
        samples.end(1),
    ]
    page = page_of(tmp_path, records)
    outline = Outline(page)
    assert [tag for tag, _ in outline.tags].count("script") == 1, "the page's own"
    assert "{{ 7*7 }}" in page, "no second rendering"
    assert "".join(outline.text).count("alert('x')") >= 8


def test_links_have_targets_and_ids_are_unique(tmp_path):
    outline = Outline(page_of(tmp_path, samples.red()))
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link[1:] for link in outline.links} <= set(outline.ids)


def test_regions_that_scroll_can_be_reached_by_keyboard(tmp_path):
    for tag, values in Outline(page_of(tmp_path, samples.red())).tags:
        if "scroll" in (values.get("class") or "").split() or (tag == "pre" and "tabindex" in values):
            assert values["tabindex"] == "0"


def test_empty_evidence_gives_a_red_page(tmp_path):
    (tmp_path / "evidence.jsonl").touch()
    text = "".join(Outline(render_html(read(tmp_path / "evidence.jsonl"))).text)
    assert "Nothing was planned" in text
    assert "the run record is missing" in text


@pytest.mark.parametrize("lost", range(len(samples.red())))
def test_a_page_is_made_from_incomplete_evidence(tmp_path, lost):
    records = samples.red()
    records.pop(lost)
    Outline(page_of(tmp_path, records))


@pytest.mark.parametrize(("shared", "text"), [(1, "4, 2"), (2, "4, 2 (up to 2 on a GPU)")])
def test_ranks_that_shared_gpus_are_shown(tmp_path, shared, text):
    run = samples.run(device="cuda", arch="sm_90", ranks=(4, 2), ranks_per_gpu=shared)
    assert f"<dt>Ranks</dt><dd>{text}</dd>" in page_of(tmp_path, [run, *samples.green()[1:]])


def test_the_fidelity_of_a_kernel_is_shown(tmp_path):
    entry = {"opcode": "v_exp_f32", "grade": "approximate", "bound": "1 ulp", "source": "CDNA3 ISA", "executions": 24}
    records = []
    for record in samples.green():
        launches = getattr(record, "launches", None)
        if launches:
            record = replace(record, launches={key: {**each, "inexact": [entry]} for key, each in launches.items()})
        records.append(record)
    text = " ".join("".join(Outline(page_of(tmp_path, records)).text).split())
    assert "1 opcode not exact, all others exact" in text
    assert "v_exp_f32 approximate: 1 ulp CDNA3 ISA; executed 72 times" in text
    plain = " ".join("".join(Outline(page_of(tmp_path, samples.green())).text).split())
    assert "all others exact" not in plain
