"""The table of public names by device."""

import io
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from command_line.main import cli, main
from harness.errors import UsageError
from harness.evidence import Group, Plan, PlannedGroup, Requirement, read
from reports import markdown, names_of, print_names, render_html
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP


@pytest.fixture
def evidence(tmp_path):
    """Return a function that writes records and reads them as evidence."""
    made = []

    def write(records):
        made.append(samples.write(tmp_path / f"run{len(made)}" / "evidence.jsonl", records))
        return read(made[-1])

    (tmp_path / "run0").mkdir()
    for number in range(1, 4):
        (tmp_path / f"run{number}").mkdir()
    write.paths = made
    return write


def on(records, **changes):
    """Return the same records with a changed run record."""
    return [samples.run(**changes), *records[1:]]


def cells(names):
    return {row.name: [cell.text for cell in row.cells] for row in names.rows}


def test_a_green_run(evidence):
    names = names_of([evidence(samples.green())])
    assert names.devices == ("emulated gfx942",)
    assert cells(names) == {"put": ["pass"], "atomic_add": ["pass"]}
    assert {row.name: row.requirements for row in names.rows} == {"put": (PUT,), "atomic_add": (ADD,)}
    assert names.good
    assert names.headline == "public names passed: 2 of 2 on emulated gfx942"


def test_each_device_has_a_column_with_its_own_verdicts(evidence):
    names = names_of([evidence(samples.green()), evidence(on(samples.red(), device="cuda", arch="sm_90"))])
    assert names.devices == ("emulated gfx942", "cuda sm_90")
    assert cells(names) == {"put": ["pass", "pass"], "atomic_add": ["pass", "fail"]}
    assert not names.good
    assert names.headline == "public names passed: 2 of 2 on emulated gfx942, 1 of 2 on cuda sm_90"


def test_runs_on_one_device_make_one_column_with_the_worst(evidence):
    for order in ((samples.green(), samples.red()), (samples.red(), samples.green())):
        names = names_of([evidence(records) for records in order])
        assert cells(names) == {"put": ["pass"], "atomic_add": ["fail"]}


def test_another_mode_is_another_column(evidence):
    names = names_of([evidence(samples.green()), evidence(on(samples.green(), mode="race"))])
    assert names.devices == ("emulated gfx942", "emulated gfx942 race")


def test_ranks_that_shared_gpus_are_another_column(evidence):
    cuda = {"device": "cuda", "arch": "sm_90"}
    runs = [on(samples.green(), **cuda, ranks_per_gpu=shared) for shared in (1, 4)]
    assert names_of([evidence(run) for run in runs]).devices == ("cuda sm_90", "cuda sm_90 up to 4 on a GPU")


def test_the_worst_requirement_counts(evidence):
    both = Plan(
        samples.plan().groups, (Requirement(PUT, "a", covers=("put", "Iris")), Requirement(ADD, "b", covers=("Iris",)))
    )
    records = samples.red()
    records[1] = both
    assert cells(names_of([evidence(records)])) == {"Iris": ["fail"], "put": ["pass"]}


def test_a_planned_requirement_that_did_not_run_is_not_a_pass(evidence):
    records = [record for record in samples.green() if not (isinstance(record, Group) and record.group == ADD_GROUP)]
    names = names_of([evidence(records)])
    assert cells(names) == {"put": ["pass"], "atomic_add": ["not run"]}
    assert not names.good


def put_only():
    """Return a run on a device that plans no requirement of atomic_add, and one requirement less of put."""
    plan = Plan((PlannedGroup(PUT_GROUP, PUT, "x"),), (Requirement(PUT, "a", covers=("put",)),))
    return [samples.run(device="cuda", arch="sm_90"), plan, *samples.green()[2:6], samples.end(0)]


def test_a_device_without_the_requirement_is_not_a_failure(evidence):
    everywhere = samples.green()
    everywhere[1] = Plan(
        samples.plan().groups, (Requirement(PUT, "a", covers=("put",)), Requirement(ADD, "b", covers=("put", "add")))
    )
    names = names_of([evidence(everywhere), evidence(put_only())])
    assert cells(names) == {"put": ["pass", "pass, 1 of 2"], "add": ["pass", "not run"]}
    assert names.good
    assert (
        names.headline == "public names passed: 2 of 2 on emulated gfx942, 1 of 2 on cuda sm_90 (1 had nothing to run)"
    )


def test_names_of_the_top_level_come_first(evidence):
    records = samples.green()
    order = ("put", "logger", "Iris", "ccl.all_gather", "Iris.zeros", "ccl.Config", "iris")
    records[1] = Plan(samples.plan().groups, (Requirement(PUT, "a", covers=order), Requirement(ADD, "b")))
    listed = [row.name for row in names_of([evidence(records)]).rows]
    assert [name.lower() for name in listed[:4]] == ["iris", "iris", "logger", "put"]
    assert listed[4:] == ["ccl.all_gather", "ccl.Config", "Iris.zeros"]


def test_different_implementations_are_not_mixed(evidence):
    other = on(samples.green(), implementation={"name": "iris"})
    with pytest.raises(UsageError, match="runs of one implementation, got iris, iris_under_test"):
        names_of([evidence(samples.green()), evidence(other)])


def test_the_table_and_markdown_show_the_same(evidence):
    names = names_of([evidence(samples.green()), evidence(on(samples.red(), device="cuda", arch="sm_90"))])
    console = Console(file=io.StringIO(), width=100)
    print_names(names, console)
    lines = console.file.getvalue().splitlines()
    assert [re.split(r"\s{2,}", line.strip()) for line in lines[:3]] == [
        ["public name", "emulated gfx942", "cuda sm_90", "requirements"],
        ["atomic_add", "pass", "fail", ADD],
        ["put", "pass", "pass", PUT],
    ]
    assert markdown(names).splitlines() == [
        "| public name | emulated gfx942 | cuda sm_90 | requirements |",
        "| --- | --- | --- | --- |",
        f"| `atomic_add` | pass | fail | {ADD} |",
        f"| `put` | pass | pass | {PUT} |",
        "",
        "public names passed: 2 of 2 on emulated gfx942, 1 of 2 on cuda sm_90.",
    ]


def test_the_page_has_them_with_links_to_their_requirements(evidence):
    page = render_html(evidence(samples.red()))
    section = page[page.index('<section id="names"') :]
    section = section[: section.index("</section>")]
    assert re.search(rf'mono">atomic_add</th>\s*<td><span class="verdict fail">.*?href="#{ADD}"', section, re.DOTALL)
    assert re.search(rf'mono">put</th>\s*<td><span class="verdict pass">.*?href="#{PUT}"', section, re.DOTALL)
    assert 'href="#names"' in page


@pytest.mark.parametrize(("records", "status"), [(samples.green, 0), (samples.red, 1)])
def test_the_command_and_its_exit_status(evidence, records, status):
    evidence(samples.green())
    evidence(on(records(), device="cuda", arch="sm_90"))
    done = CliRunner().invoke(cli, ["names", *map(str, evidence.paths), "--format", "markdown"], standalone_mode=False)
    assert done.return_value == status
    assert done.output.startswith("| public name | emulated gfx942 | cuda sm_90 | requirements |\n")


def test_missing_evidence(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["names", str(tmp_path / "evidence.jsonl")])
    assert end.value.code == 2
    assert "no evidence at" in capsys.readouterr().err


def test_a_damaged_file_is_reported_and_not_a_pass(evidence):
    evidence(samples.green())
    (path,) = evidence.paths
    path.write_text(path.read_text() + "{torn\n")
    done = CliRunner().invoke(cli, ["names", str(path)], standalone_mode=False)
    assert done.return_value == 1
    assert str(path) in done.stderr and "is not JSON" in done.stderr
