"""Documents of a certificate that follow from its evidence: manifest, plan, environment and the signed statement.

A verifier makes them again from the evidence and compares. Only ``created``, the version of the harness and, of another
version, the sharpness are read from the manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from certificates.archive import ENVIRONMENT, EVIDENCE, MANIFEST, MUSTPASS, PLAN, REQUIREMENTS, STATEMENT, WAIVERS
from harness.evidence import APART, NO_PROFILE, Evidence, Verdict
from harness.evidence.records import to_json

FORMAT = 1
"""Version of the form of certificates."""
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
PASSED, WARNED, FAILED = "PASSED", "WARNED", "FAILED"

_CONFIGURATION = (REQUIREMENTS, MUSTPASS, WAIVERS, PLAN, ENVIRONMENT, EVIDENCE)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def result_of(evidence: Evidence) -> str:
    """Return PASSED for a complete run of a level for a hardware profile of which everything passed; WARNED if what ran
    passed, but the run is partial or has no profile, failures are waived, or the library does not support every
    requirement; else FAILED.
    What is unknown or did not run has failed."""
    verdict = evidence.verdict()
    if verdict.red or verdict is Verdict.QUARANTINED or not evidence.groups:
        return FAILED
    return PASSED if verdict is Verdict.PASS and evidence.complete and for_a_level(evidence) else WARNED


def for_a_level(evidence: Evidence) -> bool:
    """Return whether the run is for a level and a hardware profile, so that a list states which groups it must have.

    A run of some of the shards is not."""
    return evidence.whole and bool(evidence.runs) and all(run.profile != NO_PROFILE for run in evidence.runs)


def made_from(evidence: Evidence, created: str, version: str, sharpness: Any) -> dict[str, dict[str, Any]]:
    """Return manifest, plan and environment by the name of their member. The evidence has one run and its end.

    ``sharpness``: the figure of the suite of that version.
    """
    [run], end = evidence.runs, evidence.ends[0]
    plain = to_json(run)
    results = evidence.requirements().values()
    manifest = {
        "format": FORMAT,
        "created": created,
        "harness": version,
        "sharpness": sharpness,
        "run": {
            name: plain[name]
            for name in ("id", "device", "arch", "mode", "ranks", "ranks_per_gpu", "level", "profile", "seed")
        },
        "implementation": plain["implementation"],
        "started": run.started,
        "finished": end.finished,
        "api": evidence.api,
        "result": result_of(evidence),
        "verdict": evidence.verdict().value,
        "requirements": {result.id: result.verdict.value for result in results},
        "counts": {
            "groups": len(evidence.plan),
            "cases": len(evidence.cases),
            "cases_judged_apart": sum(case.judge == APART for case in evidence.cases),
            "kernels": len(evidence.kernels),
            "marks": sum(len(record.marks) for record in evidence.telemetry),
        },
        "missing": list(evidence.missing()),
        "waived": {name: waiver.to_json() for name, waiver in sorted(evidence.waived().items())},
        "declaration": list(evidence.declaration),
    }
    plan = {
        "api": evidence.api,
        "groups": [vars(group) for _, group in sorted(evidence.plan.items())],
        "not_applicable": dict(sorted(evidence.not_applicable.items())),
        "left_out": dict(sorted(evidence.left_out.items())),
        "unsupported": dict(sorted(evidence.unsupported.items())),
        "capabilities": dict(sorted(evidence.capabilities.items())),
    }
    environment = {
        "environment": plain["environment"],
        "circumstances": plain["circumstances"],
        "harness": plain["harness"],
        "hardware": [to_json(record) for record in evidence.hardware],
    }
    return {MANIFEST: manifest, PLAN: plan, ENVIRONMENT: environment}


def statement_of(evidence: Evidence, members: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the in-toto statement about ``members``, all of which it names with their digests."""
    verdicts = {result.id: result.verdict for result in evidence.requirements().values()}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [*member_subjects(members), *_code_subjects(evidence)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": result_of(evidence),
            "configuration": [_subject(name, members[name]) for name in _CONFIGURATION if name in members],
            "passedTests": [name for name, verdict in verdicts.items() if verdict is Verdict.PASS],
            "warnedTests": [
                name for name, verdict in verdicts.items() if verdict in (Verdict.UNSUPPORTED, Verdict.WAIVED)
            ],
            "failedTests": [
                name for name, verdict in verdicts.items() if verdict.red or verdict is Verdict.QUARANTINED
            ],
        },
    }


def member_subjects(members: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the subjects of a statement that stand for members: all but the statement itself."""
    return [_subject(name, content) for name, content in sorted(members.items()) if name != STATEMENT]


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a document in its one form as a member."""
    return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"


def _subject(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": hashlib.sha256(content).hexdigest()}}


def _code_subjects(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a subject for the tested package and one for each package of the harness whose sources were recorded."""
    run = evidence.runs[0]
    packages = [(f"implementation/{run.implementation['name']}", run.implementation)]
    packages += [(f"harness/{name}", state) for name, state in run.harness.get("packages", {}).items()]
    subjects = []
    for name, state in packages:
        digest = {"sha256": state["sha256"]} if state.get("sha256") else {}
        if _COMMIT.fullmatch(state.get("commit") or ""):
            digest["gitCommit"] = state["commit"]
        if digest:
            subjects.append({"name": name, "digest": digest})
    return subjects
