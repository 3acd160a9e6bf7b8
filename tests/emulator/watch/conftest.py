"""The two ways in which mode ``check`` executes a program."""

import pytest

from harness.emulator.driver import checked


@pytest.fixture(params=["interpreted", "native"])
def form(request, monkeypatch):
    """Interpret programs in mode ``check``, or run them in native code from their first launch on.

    A program that native code cannot check is interpreted either way.
    """
    find = checked.CheckedHeat.find

    def forced(heat, launch):
        heat.force(request.param == "native")
        return find(heat, launch)

    monkeypatch.setattr(checked.CheckedHeat, "find", forced)
    return request.param
