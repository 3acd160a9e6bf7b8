"""Memory files for output: short ones are kept whole, long ones are emptied, and reports state that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from harness import children
from harness.ranks.output import OUTPUT_LIMIT, Output, Watch


@pytest.fixture
def file() -> Iterator[int]:
    descriptor = children.memory_file("test")
    yield descriptor
    os.close(descriptor)


def test_short_output_is_whole(file: int) -> None:
    output = Output(file)
    os.write(file, b"of the call before")
    output.mark()
    text = "".join(f"line {number}\n" for number in range(1500))
    assert 1 << 13 < len(text) < 1 << 14
    os.write(file, text.encode())
    assert output.text() == text and output.lost == 0


def test_of_long_output_the_beginning_and_the_end_are_kept(file: int) -> None:
    output = Output(file)
    os.write(file, b"first" + bytes(50_000) + b"last")
    text = output.text()
    assert text.startswith("first") and text.endswith("last")
    assert f"[... {50_009 - (1 << 12) - (1 << 14):,} bytes of output cut ...]" in text
    assert output.lost == 0, "nothing is thrown away, it is only not shown"


def test_a_file_that_is_too_long_is_emptied(file: int) -> None:
    output = Output(file)
    os.write(file, b"first")
    written = 5
    for _ in range(3):
        written += os.write(file, bytes(OUTPUT_LIMIT) + b"end of a part")
        output.shorten()
        assert os.fstat(file).st_size == 0
    written += os.write(file, b", last")
    output.shorten()
    text = output.text()
    assert text.startswith("first") and text.endswith("end of a part, last")
    assert f"at least {written - (1 << 12) - (1 << 14):,} bytes of output cut" in text
    assert output.lost == written - len(", last") - (1 << 12)
    output.mark()
    assert (output.text(), output.lost) == ("", 0)


def test_a_watch_ends_with_stop(file: int) -> None:
    before = set(threading.enumerate())
    watch = Watch()
    output = watch.add(file)
    [thread] = set(threading.enumerate()) - before
    watch.remove(output)
    watch.remove(output)
    watch.stop()
    thread.join(10)
    assert not thread.is_alive()
