"""Progress from a growing evidence file: only complete lines are read, and each is counted once."""

import io

import pytest
from rich.console import Console

from command_line.suite.progress import Display, Follower
from harness.evidence import Group, Store, Verdict, worker_path
from tests.evidence import samples


def test_figures_grow_with_the_file(tmp_path):
    path = tmp_path / "evidence.jsonl"
    follower = Follower(path)
    assert not follower.look()
    with Store(path) as store:
        for record in samples.red():
            store.append(record)
            follower.look()
    assert (follower.planned, follower.done, follower.cases, follower.not_passed) == (2, 2, 3, 1)
    assert follower.current == samples.ADD_GROUP
    assert not follower.look()


def test_a_line_is_read_when_it_is_complete(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green()[:4])
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    follower = Follower(path)
    follower.look()
    assert follower.cases == 0
    path.write_bytes(content)
    follower.look()
    assert follower.cases == 1


def test_workers_are_followed_and_not_counted_twice_when_they_are_absorbed(tmp_path):
    path = tmp_path / "evidence.jsonl"
    follower = Follower(path)
    records = samples.green()
    with Store(path) as store:
        for record in records[:2]:
            store.append(record)
        samples.write(worker_path(path, "gw0"), records[2:6])
        follower.look()
        assert (follower.done, follower.cases) == (1, 2)
        store.absorb_workers()
        follower.look()
    assert (follower.done, follower.cases) == (1, 2)


def shown(tmp_path, console, ticks, records=()):
    path = samples.write(tmp_path / "evidence.jsonl", list(records) or samples.red())
    clock = iter(ticks)
    with Display(Follower(path), console, interval=10, clock=lambda: next(clock)) as display:
        display.update()
    return console.file.getvalue()


def test_a_plain_line_per_interval(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    text = shown(tmp_path, console, [0, 12, 12, 12])
    assert text == f"12 s: 2/2 groups, 3 cases, 1 not passed  {samples.ADD_GROUP}\n"


def test_nothing_before_the_interval(tmp_path):
    assert shown(tmp_path, Console(file=io.StringIO(), width=200), [0, 5]) == ""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_control_characters_in_a_group_name_do_not_reach_the_terminal(tmp_path, is_terminal):
    console = Console(file=io.StringIO(), width=300, force_terminal=is_terminal)
    text = shown(tmp_path, console, [0, *[12] * 8], [Group("\x1b]0;owned\x07\u202e", samples.PUT, Verdict.PASS, 0)])
    assert "\\x1b]0;owned\\x07\\u202e" in text
    assert not {"\x1b]", "\x07", "\u202e"} & {*text, *(text[at : at + 2] for at in range(len(text)))}


def test_a_bar_on_a_terminal(tmp_path):
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    text = shown(tmp_path, console, [0] * 9)
    assert "2/2" in text
    assert samples.ADD_GROUP in text
