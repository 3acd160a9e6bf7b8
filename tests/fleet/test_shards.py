"""The division of a run's groups into shards."""

import itertools

import pytest

from fixtures.options import check_node, check_shard
from harness.errors import UsageError
from harness.evidence import shards
from tests.evidence import samples

NAMES = [f"RMA-PUT-001[ranks=4,dtype={number}]" for number in range(10)] + ["HOST-INIT-001[ranks=4]"]


@pytest.mark.parametrize("of", [1, 2, 3, 11, 20])
def test_every_group_is_in_one_shard(of):
    parts = shards.divided(reversed(NAMES), of)
    assert len(parts) == of
    assert sorted(itertools.chain(*parts)) == sorted(NAMES)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts == shards.divided(NAMES, of), "the order in which tests were collected does not matter"


def test_long_groups_are_in_different_shards():
    parts = shards.divided(NAMES, 2, {NAMES[3]: 60.0, NAMES[4]: 50.0, NAMES[5]: 1.0})
    assert NAMES[3] in parts[0] and NAMES[4] in parts[1]


def test_the_mandatory_groups_are_one_of_the_host_and_one_put():
    assert shards.mandatory_of(NAMES) == ("HOST-INIT-001[ranks=4]", "RMA-PUT-001[ranks=4,dtype=0]")
    assert shards.mandatory_of(["B-1[ranks=1]", "A-1[ranks=1]"]) == ("A-1[ranks=1]",)
    assert shards.mandatory_of([]) == ()


def test_the_digest_changes_with_everything_that_changes_a_shard():
    digests = [
        shards.to_text(NAMES, 2, {"level": "gate"})[0].digest,
        shards.to_text(NAMES, 3, {"level": "gate"})[0].digest,
        shards.to_text(NAMES[1:], 2, {"level": "gate"})[0].digest,
        shards.to_text(NAMES, 2, {"level": "core"})[0].digest,
        shards.to_text(NAMES, 2, {"level": "gate"}, {NAMES[0]: 9.0})[0].digest,
    ]
    assert len(set(digests)) == len(digests)
    assert digests[0] == shards.to_text(NAMES[::-1], 2, {"level": "gate"})[0].digest


def test_a_file_is_read_again(tmp_path):
    division, text = shards.to_text(NAMES, 3, {"level": "gate"})
    (tmp_path / shards.FILE).write_text(text)
    file = shards.DivisionFile(tmp_path / shards.FILE)
    assert file.division == division and file.division.digest == division.digest
    assert [file.groups(index) for index in (1, 2, 3)] == shards.divided(NAMES, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("dtype=3", "dtype=X"), "does not match the digest in line 1"),
        (lambda text: text.replace('"division":1', '"division":9'), "first line has another form"),
        (lambda text: text.replace('"of":2', '"of":"2"'), "first line has another form"),
        (lambda text: text[:-20], "cut off"),
        (lambda text: "", "cut off"),
        (lambda text: "[]\n" + text, "is not a JSON object"),
    ],
)
def test_a_file_that_was_changed_is_refused(tmp_path, change, words):
    (tmp_path / shards.FILE).write_text(change(shards.to_text(NAMES, 2, {})[1]))
    with pytest.raises(UsageError, match=words):
        [shards.DivisionFile(tmp_path / shards.FILE).groups(index) for index in (1, 2)]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "01/3", "-1/3", "1/99999", "1/3/4", " 1/3", "1/3\n"])
def test_what_is_not_a_shard(text):
    with pytest.raises(UsageError, match="--shard: expected I/N"):
        shards.parse_shard(text)


def test_options_that_do_not_fit_a_shard():
    assert check_shard(None, None, None, True) is None
    for values, words in (
        ((None, "plan", None, False), "--shard-plan: only a shard"),
        ((None, None, "weights", False), "--weights: only a shard"),
        (("1/2", "plan", "weights", False), "leave out one of both"),
        (("1/2", None, None, True), "name one for all shards with --seed"),
        (("1/2", None, None, False, "case.json"), "a replay runs one case"),
    ):
        with pytest.raises(UsageError, match=words):
            check_shard(*values)
    assert check_node("gpu-node.7_a") == "gpu-node.7_a"
    for name in ("", "../x", "-x", "a b", "x" * 65, "a\n"):
        with pytest.raises(UsageError, match="--node"):
            check_node(name)


def test_weights_are_the_seconds_of_earlier_groups(tmp_path):
    records = samples.green()
    records[5] = type(records[5])(samples.PUT_GROUP, samples.PUT, records[5].verdict, 2, seconds=12.5)
    path = samples.write(tmp_path / "evidence.jsonl", records)
    assert shards.weights_in(path) == {samples.PUT_GROUP: 12.5}
    (tmp_path / "empty.jsonl").write_text("{}\n")
    for name, words in (("empty.jsonl", "has no record of a group"), ("absent.jsonl", "cannot be read")):
        with pytest.raises(UsageError, match=f"--weights: .*{words}"):
            shards.weights_in(tmp_path / name)
