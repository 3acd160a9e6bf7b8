"""Health of a machine of a fleet: before a shard starts, and after it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from harness.evidence import Evidence, Verdict

TIMEOUT = 300.0
_BROKEN = "uncorrect"
"""Part of the names of telemetry fields that count memory errors which were not corrected."""
_RAN = (Verdict.PASS, Verdict.FAIL, Verdict.FLAKY)


def examine(device: str, command: Sequence[str], doctor: bool) -> str | None:
    """Return why this machine cannot run shards on ``device``; None if it can."""
    return (_doctor(device) if doctor else None) or (_command(command) if command else None)


def of_evidence(evidence: Evidence) -> str | None:
    """Return why the verdicts of a shard are those of a broken machine; None if nothing in its evidence shows that.

    A machine is broken on which not one case ran, the mandatory groups included, or whose memory had errors that were
    not corrected.
    """
    for record in evidence.telemetry:
        for mark in record.marks:
            if _BROKEN in mark:
                return f"telemetry: {mark:.120}"
    verdicts = [record.verdict for records in evidence.groups.values() for record in records]
    if evidence.plan and not any(verdict in _RAN for verdict in verdicts):
        messages = [record.message for records in evidence.groups.values() for record in records if record.message]
        return f"no case ran: {messages[0]:.120}" if messages else "no case ran: the ranks did not start"
    return None


def _doctor(device: str) -> str | None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "command_line", "doctor", "--json"],
            capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        findings: dict[str, Any] = json.loads(done.stdout)
        [reason] = [each["reason"] for each in findings["devices"] if each["name"] == device and not each["ok"]] or [""]
    except subprocess.TimeoutExpired:
        return f"doctor did not end within {TIMEOUT:.0f} s"
    except (ValueError, KeyError, TypeError):
        return f"doctor ended with status {done.returncode} and no answer"
    return f"doctor: {reason}" if reason else None


def _command(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {TIMEOUT:.0f} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return None
    lines = (done.stdout + done.stderr).split("\n")
    first = next((line.strip() for line in lines if line.strip()), f"exit status {done.returncode}")
    return f"{command[0]}: {first:.120}"
