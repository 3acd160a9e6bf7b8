"""Random cases of a certificate, run again on this machine."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import click

from certificates import Verification
from harness.errors import UsageError
from harness.evidence import Verdict
from harness.printable import plain

_RUN = (Verdict.PASS, Verdict.FAIL)


def cases(certificate: Verification, count: int, implementation: str | None) -> int:
    """Run ``count`` random cases of a certificate, all if it has fewer; print how many gave the recorded verdict.

    Returns 0 if all did, 1 if one did not, 128 + N if signal N stopped a case. Cases that were neither a pass nor a
    failure are not run. Raises UsageError if this installation or machine cannot run them, or if ``implementation``
    does not confirm the certificate's implementation.
    """
    try:
        from command_line.commands.replay import find_case, run_again
        from command_line.preflight import check_software
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--rerun needs packages that are not installed ({error.name}): pip install 'iris-harness[suite]'"
        ) from error
    listed = certificate.evidence.cases if certificate.evidence is not None else []
    recorded = {case.id: case.verdict for case in listed if case.verdict in _RUN}
    chosen = random.SystemRandom().sample(sorted(recorded), min(count, len(recorded)))
    different = []
    with tempfile.TemporaryDirectory(prefix="iris-rerun-") as folder:
        file = certificate.write_evidence(Path(folder))
        for identity in chosen:
            replay = find_case(identity, file, implementation)
            request = replay.request
            check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
            status = run_again(replay)
            if status > 1:
                return status
            if (status == 0) != (recorded[identity] is Verdict.PASS):
                different.append(f"{identity} ({recorded[identity]} in the certificate)")
    click.echo(f"Rerun: {len(chosen) - len(different)} of {len(chosen)} cases gave the recorded verdict")
    if different:
        click.echo(plain(f"Other verdicts: {', '.join(different)}"))
    return 1 if different else 0
