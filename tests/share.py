"""Part of a run's slow tests: ``--share K/N`` chooses, of the tests marked slow or long, share K of N.

Every other test runs as well. A test's share depends on its ID and nothing else, so the shares 1/N to N/N have each
test once, and a share has the same tests wherever it runs.
"""

from __future__ import annotations

import argparse
import re
import zlib

import pytest

_MARKS = ("slow", "long")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tests of the harness").addoption(
        "--share", type=_share, metavar="K/N",
        help="of the tests marked slow or long, run only share K of N, such as 1/3; other tests always run",
    )  # fmt: skip


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.option.share is None:
        return None
    return "share {} of {} of the tests marked slow or long".format(*config.option.share)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.share is None:
        return
    share, count = config.option.share
    chosen, others = [], []
    for item in items:
        is_shared = any(item.get_closest_marker(mark) for mark in _MARKS)
        is_chosen = not is_shared or zlib.crc32(item.nodeid.encode()) % count == share - 1
        (chosen if is_chosen else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


def _share(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share K/N with 1 <= K <= N, such as 1/3")
    return int(match[1]), int(match[2])
