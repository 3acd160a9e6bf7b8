"""``iris-harness certify``: the whole suite, its evidence and its reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

import certificates
import fixtures
from command_line import preflight
from command_line.commands import bundle
from command_line.commands.check import files_of
from command_line.options import PATH, suite_options
from command_line.output import console, say
from command_line.publishing import JUNIT, PARTIAL, REPORT, publish
from command_line.suite import groups as suite_groups
from command_line.suite.run import check_started, conclude, run_suite, set_aside
from fixtures.hardware import profiles
from harness import runs
from harness.errors import UsageError
from harness.evidence import read_table
from harness.evidence.suite import installed_table
from harness.evidence.waivers import FILE
from harness.ranks import meeting, node


@click.command("certify", short_help="Run the suite; write evidence and reports.")
@suite_options(level="gate", output=Path("out", "certify"), judge=None)
@click.option(
    "--groups", metavar="N", help="Rank groups that work at the same time.  [default: what the machine holds]"
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure; the rest is reported as not run.")
@click.option(
    "--profile",
    metavar="NAME",
    help=f"The machine: {', '.join(profiles())}; refused if this is another one.  [default: what it is]",
)
@click.option("--waivers", type=PATH, default=None, help="File of requirements that are known to fail; see the docs.")
@click.option("--no-waivers", is_flag=True, help="Lift all waivers, also where --waivers names a file.")
@click.option("--quarantine", type=PATH, default=None, help="File of flaky groups; makes it a run for no level.")
@click.option("--shard", metavar="I/N", help="Run the groups of shard I of N; iris-harness merge joins the shards.")
@click.option("--shard-plan", type=PATH, help="The division into shards, shards.jsonl.  [default: made from the tests]")
@click.option("--weights", type=PATH, help="Earlier evidence: the seconds of its groups divide the work evenly.")
@click.option("--node", metavar="NAME", help="Name of this machine in the evidence of a shard.")
@click.option("--requirement", "only", metavar="ID", multiple=True, help="Run only this one of a shard; repeatable.")
@click.option(
    "--nodes", metavar="N", default="1", help="Machines that the ranks of each world size are on; see the docs."
)
@click.option(
    "--endpoint",
    metavar="HOST:PORT",
    help="Where the other machines of --nodes join the first.  [default: the nodes are parts of this machine]",
)
@click.option("--node-rank", type=int, help="Number of this machine, 0 to N-1.  [default: that of torchrun or srun]")
@click.option(
    "--sign", "key", type=PATH, default=None, help=f"Private key: write {bundle.CERTIFICATE}, signed with it."
)
def command(
    output: Path,
    groups: str | None,
    fail_fast: bool,
    profile: str | None,
    waivers: Path | None,
    no_waivers: bool,
    quarantine: Path | None,
    shard: str | None,
    shard_plan: Path | None,
    weights: Path | None,
    node: str | None,
    only: tuple[str, ...],
    nodes: str,
    endpoint: str | None,
    node_rank: int | None,
    key: Path | None,
    **options: Any,
) -> int:
    """Run the conformance suite and write evidence.jsonl, report.html and junit.xml.

    It always runs the whole suite: neither PYTEST_ADDOPTS nor other settings of pytest change it. With --sign it also
    writes a certificate, which iris-harness verify checks. It is for the level, the API and the hardware profile of
    this machine; options that change what a run executes, and a machine without a profile, make it one for no level.

    With --nodes the ranks of a world size are on several machines, which start the same command, or on separate parts
    of this one. What needs access to the memory of every rank is then not applicable.

    With --shard it runs a part of the suite, and every shard of a run needs the same options. iris-harness merge makes
    one run of them; a shard alone is partial.

    \b
    Exit status: 0  every requirement of the API that this device can run was run and passed
                 1  a requirement failed, could not be checked or did not run, or a file could not be written
                 2  the request was wrong
                 3  everything that ran passed, but the run is partial: it left out requirements and names them;
                    or the certificate is for no level
                 4  everything that ran passed, but the library does not support every requirement of the API
                 5  what failed is waived or quarantined
                 130, 143  stopped by Ctrl-C or SIGTERM
    """
    signer = certificates.load_private(key) if key is not None else None
    request = preflight.check_request(**options, nodes=nodes, endpoint=endpoint)
    if node_rank is not None and endpoint is None:
        raise UsageError("--node-rank: only a machine of --nodes has one: add --endpoint HOST:PORT")
    if endpoint is not None:
        secret, number = meeting.key(), meeting.node_number(node_rank, os.environ)
        if number:
            return _serve(endpoint, number, secret)
    preflight.check_release()
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    if quarantine is not None and signer is not None:
        raise UsageError(
            "--quarantine: no certificate is made of a run with a quarantine: leave out --sign, or this option"
        )
    request = preflight.with_quarantine(request, quarantine)
    request = preflight.with_shard(request, shard, shard_plan, weights, node)
    selected = _selected(only, request)
    request, unlisted = preflight.with_profile(request, profile)
    waived = preflight.read_waivers(waivers) if waivers is not None and not no_waivers else None
    side_by_side = suite_groups.options(suite_groups.number(request, groups))
    folder = preflight.output_folder(output, REPORT, JUNIT, FILE)
    screen = console()
    if unlisted is None:
        screen.print(f"Level {request.level} on {request.profile}, API {request.api}", markup=False, soft_wrap=True)
    elif signer is not None:
        say(f"the certificate will be for no level: {unlisted}")
    with runs.claimed(folder):
        earlier = set_aside(folder / runs.EVIDENCE)
        request = preflight.with_waivers(request, waived, folder / FILE)
        outcome = run_suite(
            request, folder, screen, *side_by_side, *selected, *(["-x"] if fail_fast else []),
            targets=files_of(only) if only else ("",),
        )  # fmt: skip
        check_started(outcome, earlier)
        status = conclude(outcome, folder, screen, lambda evidence: publish(evidence, folder, screen))
        if signer is None:
            return status
        unwritten = bundle.of_run(outcome.evidence, folder / bundle.CERTIFICATE, signer)
        return status or unwritten or (PARTIAL if unlisted else 0)


def _serve(endpoint: str, number: int, secret: bytes) -> int:
    """Run the ranks of this machine for the first one, until it has ended."""
    say(f"node {number}: joining {endpoint}")
    connection = meeting.join(endpoint, number, secret)
    say(f"node {number}: joined; the results are those of the first machine")
    node.serve(connection)
    return 0


def _selected(only: tuple[str, ...], request: preflight.Request) -> list[str]:
    """Return pytest's options for a shard of some requirements."""
    if not only:
        return []
    if request.shard is None:
        raise UsageError("--requirement: only a shard has it: add --shard I/N, or use iris-harness check")
    table = read_table(installed_table())
    for identity in only:
        if identity not in table:
            raise UsageError(f"--requirement: the suite has no requirement {identity!r:.60}")
    return ["-p", fixtures.SELECTION, *(word for identity in only for word in ("--requirement", identity))]
