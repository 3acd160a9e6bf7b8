"""Disabled tracing costs nothing and writes nothing.

OFF-001   A kernel that was compiled with tracing works if the host has not enabled tracing, or if its context tensor is
          older than enable: it records no event and touches no memory of tracing. COST-001  A kernel with calls to
          record events, compiled without tracing, is the same code as a kernel without the calls. Compiled with
          tracing, no additional memory access is ordered: tracing never hides a missing release.
"""

import torch

from conformance.support.instances import release
from conformance.tracing.cases import TraceCase
from conformance.tracing.traced import BEFORE, COLUMNS, Traced, overwrite
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa

TRACING_ENTRIES = 17


def run_disabled(env, case):
    findings = Findings(env.rank)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    early = traced.iris.get_device_context()
    entries = early[2 + env.world_size :].tolist()
    findings.equal("entries of the context tensor about tracing", entries, [0] * TRACING_ENTRIES)
    with env.acting():
        traced.launch()
    env.settle()
    traced.moved(findings)
    findings.equal("enabled", tracing.enabled, False)
    tracing.enable(max_events=case.room)
    env.in_library(overwrite, tracing)
    traced.target.fill_(BEFORE)
    env.settle()
    with env.acting():
        traced.launch(context=early)
    env.settle()
    traced.moved(findings)
    findings.equal("events recorded through an early context tensor", int(tracing.trace_counter), 0)
    for name in COLUMNS:
        findings.same(name, tracing.trace_buffers[name], torch.full_like(tracing.trace_buffers[name], -7))
    env.settle()
    release(traced.iris)
    return findings.first


def run_cost(env, case):
    findings = Findings(env.rank)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=case.room)
    codes, orders = {}, {}
    env.launched()
    with env.acting():
        for label, options in (
            ("without calls", {"plain": True}),
            ("with calls, tracing off", {"tracing": False}),
            ("with calls, tracing on", {"tracing": True}),
        ):
            traced.launch(**options)
            launched = [code for launch in env.launched() for code in isa.codes_of(launch)]
            codes[label] = {code.sha256 for code in launched}
            orders[label] = [(code.language, code.writebacks, code.invalidates, code.fences) for code in launched]
            if label == "with calls, tracing off":
                findings.equal("events recorded with tracing compiled out", int(tracing.trace_counter), 0)
    env.settle()
    traced.moved(findings)
    if traced.acts and not env.fault:
        findings.equal("code with calls, tracing off", codes["with calls, tracing off"], codes["without calls"])
        findings.true(
            "code of tracing differs from code without", codes["with calls, tracing on"] != codes["without calls"]
        )
        findings.equal("order of memory with tracing on", orders["with calls, tracing on"], orders["without calls"])
        findings.equal("events recorded with tracing compiled in", int(tracing.trace_counter), case.count)
    env.settle()
    release(traced.iris)
    return findings.first


SHAPES = (("int32", 1, 10, True, 1, 1), ("fp16", 3, 5000, False, 8, 4))
"""Element type, work-groups, elements, whether masked, elements per thread, wavefronts. Triton's kernels have one of
them only, which one rank launches."""


def cases(ranks):
    return [
        TraceCase(form=form, kinds=(3, 5, 13), dtype=dtype, grid=grid, n=n, masked=masked, spt=spt, warps=warps)
        for form, shapes in (("gluon", SHAPES), ("triton", SHAPES[:1]))
        for dtype, grid, n, masked, spt, warps in shapes
    ]


@requirement("TRACE-OFF-001", cases=cases, one_process_on_gpus="")
def test_disabled(check, case):
    check(run_disabled, case)


@requirement("TRACE-COST-001", cases=cases, one_process_on_gpus="")
def test_cost(check, case):
    check(run_cost, case)
