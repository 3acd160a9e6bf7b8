"""Files that no run wrote: one line per problem, in bounded time and memory, and never a traceback."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command_line.suite.progress import Follower
from harness.errors import UsageError
from harness.evidence import read
from harness.evidence.lines import MAX_DEPTH, MAX_LINE, parse
from tests.evidence import samples

GOOD = b'{"schema":2,"record":"case","group":"RMA-PUT-001[ranks=4]"'
LINES = {
    "nesting": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "nesting of lists": GOOD + b',"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "nesting that Python reads": GOOD + b',"x":' + b"[" * 500 + b"]" * 500 + b"}",
    "unclosed": b"[" * 1_000_000,
    "NaN": GOOD + b',"x":NaN}',
    "Infinity": GOOD + b',"x":[-Infinity]}',
    "an infinite number": GOOD + b',"x":1e999}',
    "a huge number": b'{"schema":2,"record":"case","seed":' + b"9" * 4000 + b"}",
    "a longer number": b'{"schema":2,"record":"case","seed":' + b"9" * 1_000_000 + b"}",
    "a huge version": b'{"schema":' + b"9" * 250 + b',"record":"run"}',
    "a key twice": GOOD + b',"verdict":"pass","verdict":"fail"}',
    "a list as record": b'{"schema":2,"record":["case"]}',
    "an object as record": b'{"schema":2,"record":{"a":1}}',
    "no record": b'{"schema":2}',
    "an unknown record": b'{"schema":2,"record":"verdict"}',
    "groups that are none": b'{"schema":2,"record":"plan","groups":7}',
    "a group that is a list": b'{"schema":2,"record":"case","group":[]}',
    "a group without verdict": b'{"schema":2,"record":"group","group":"x"}',
    "an envelope of wrong types": b'{"schema":2,"record":"end","run":[],"sequence":"0","chain":null}',
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "an empty object": b"{}",
    "an empty line": b"",
    "no UTF-8": b'{"schema":2,"record":"\xff\xfe"}',
    "a byte order mark": b'\xef\xbb\xbf{"schema":2,"record":"end"}',
    "UTF-16": '{"schema":2}'.encode("utf-16"),
    "NUL": b"\x00" * 100,
    "NUL in text": b'{"schema":2,"record":"\x00"}',
    "escapes": b'{"schema":2,"record":"\\u001b[31mred\\u0007\\u202e"}',
    "carriage return": b'{"schema":2,"record":"end"}\r',
    "binary": bytes(range(256)).replace(b"\n", b""),
    "too long": b"x" * (MAX_LINE + 1),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_is_one_problem(tmp_path, line):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    path.write_bytes(path.read_bytes() + line + b"\n")
    [problem] = read(path).problems
    assert problem.startswith("evidence.jsonl line 10 ")
    assert problem.isprintable()
    assert len(problem) <= 310


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_the_display_goes_on_after_it(tmp_path, line):
    path = tmp_path / "evidence.jsonl"
    follower = Follower(path)
    good = samples.write(tmp_path / "good.jsonl", samples.red()).read_bytes()
    path.write_bytes(line + b"\n" + good)
    follower.look()
    assert (follower.planned, follower.not_passed) == (2, 1 + (line == LINES["a group without verdict"]))
    assert follower.current == samples.ADD_GROUP


@pytest.mark.parametrize("line", [LINES[name] for name in LINES if name != "a huge version"])
def test_a_file_of_nothing_else_is_refused_in_one_line(tmp_path, line):
    path = tmp_path / "evidence.jsonl"
    path.write_bytes(line + b"\n" + line)
    with pytest.raises(UsageError, match=r"holds no record of evidence: evidence\.jsonl line 1") as caught:
        read(path)
    assert str(caught.value).isprintable()


def test_an_empty_file_has_gaps(tmp_path):
    (tmp_path / "evidence.jsonl").touch()
    evidence = read(tmp_path / "evidence.jsonl")
    assert "the run record is missing" in evidence.gaps()
    assert not evidence.complete


def test_what_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="which is a folder"):
        read(tmp_path)
    with pytest.raises(UsageError, match="which is not a file"):
        read("/dev/zero")
    with pytest.raises(UsageError, match="which is missing"):
        read(tmp_path / "evidence.jsonl")
    follower = Follower(tmp_path)
    assert not follower.look()


def test_a_long_line_costs_little_memory_and_is_followed_once(tmp_path):
    """100 MB without a line end, in a process that may use 200 MB more than it has."""
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    with path.open("ab") as file:
        for _ in range(100):
            file.write(b"[" * 1_000_000)
    code = """if True:
        import pathlib, resource, sys
        from command_line.suite.progress import Follower
        from harness.evidence import read
        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (200 << 20),) * 2)
        print(read(sys.argv[1]).problems)
        follower = Follower(pathlib.Path(sys.argv[1]))
        print(follower.look(), follower.look(), follower.done)
    """
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"['evidence.jsonl line 10 has more than {MAX_LINE:,} bytes']\nTrue False 2\n", done.stderr


def test_depth_is_measured_exactly():
    deepest = b'{"a":' * (MAX_DEPTH - 1) + b"[]" + b"}" * (MAX_DEPTH - 1)
    assert parse(deepest)
    assert parse(b'{"a":[' + b",".join([b"[]"] * 1000) + b"]}"), "many, and not deep"
    with pytest.raises(ValueError, match="64 levels"):
        parse(b'{"b":' + deepest + b"}")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    return folder / "evidence.jsonl", samples.write(folder / "source.jsonl", samples.red()).read_bytes()


def result_of(path):
    """The gaps that the report command and the reader find in a file, or the line with which they refuse it."""
    Follower(path).look()
    try:
        return read(path).gaps(), ""
    except UsageError as error:
        return (), str(error)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "duplicate"]),
        st.integers(0, 10_000),
        st.one_of(
            st.binary(min_size=1, max_size=8), st.sampled_from([b"\n", b"null", b"1e999", b"[", b'"', b"\\u0000"])
        ),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(changes=CHANGES)
def test_no_change_of_bytes_goes_unnoticed(real, changes):
    path, content = real
    changed = bytearray(content)
    for how, place, text in changes:
        at = place * len(changed) // 10_000
        if how == "insert":
            changed[at:at] = text
        elif how == "duplicate":
            changed[at:at] = changed[at : at + 500]
        else:
            changed[at : at + len(text)] = text if how == "replace" else b""
    path.write_bytes(changed)
    gaps, refused = result_of(path)
    assert all(text.isprintable() for text in (*gaps, refused))
    assert bytes(changed) == content or gaps or "schema" in refused or "holds no record" in refused


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(number=st.integers(0, 8), key=st.text(max_size=8), value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
), data=st.data())  # fmt: skip
def test_any_value_at_any_key_is_a_problem_and_no_traceback(real, number, key, value, data):
    path, content = real
    lines = content.splitlines(keepends=True)
    record = json.loads(lines[number])
    chosen = data.draw(st.sampled_from([key, *record]))
    if chosen in record and record[chosen] == value and type(record[chosen]) is type(value):
        return
    lines[number] = json.dumps({**record, chosen: value}).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    gaps, refused = result_of(path)
    assert gaps or (chosen == "schema" and refused.isprintable())
