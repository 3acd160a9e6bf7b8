"""Fixtures of the tests of rank groups."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def private_network() -> str:
    """The reason why this machine cannot give a rank group a private network; "" if it can."""
    code = "from harness.ranks import network; print(network.enter(), end='')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return done.stdout
