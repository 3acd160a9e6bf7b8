"""pytest plugin: writes the calls on the ranks that passed to a file, one JSON object a line.

    pytest -p mutants.binary.recorder --record-calls FILE ...

A call has the function, the case in its JSON form, the requirement, the test and the number of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-calls", metavar="FILE", help="file for the calls on the ranks that passed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    path, ranks = item.config.getoption("--record-calls"), item.funcargs.get("rank_group")
    if path is None or ranks is None:
        return (yield)
    requirement = next((value for name, value in item.user_properties if name == "requirement"), "")
    call, size = ranks.group.call, ranks.group.world_size

    def recording(target: str, payload: Any = None, deadline: float = 30.0) -> Any:
        answers = call(target, payload, deadline)
        if target.endswith(":run_case") and not any(answer["error"] or answer["difference"] for answer in answers):
            line = {
                "requirement": requirement,
                "nodeid": item.nodeid,
                "ranks": size,
                "target": target,
                "payload": payload,
            }
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return answers

    ranks.group.call = recording
    try:
        return (yield)
    finally:
        ranks.group.call = call
