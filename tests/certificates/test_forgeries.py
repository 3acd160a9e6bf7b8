"""Coherent forgeries: evidence with edits that agree with each other, with a new hash chain and new documents.

Its reader accepts each of them, since it has no key. A certificate shows all of them by its signature, whether the
forger keeps the old signature, signs with another key, or leaves the signature out. The checks of the content show
some of them to a reader without the key as well: ``SHOWN``.
"""

from dataclasses import replace

import pytest

from certificates import archive, envelope
from certificates.keys import new_key
from harness.evidence import Case, Group, Kernel, Plan, Requirement, Run, Verdict, case_id, read
from harness.isa import Roots, fingerprint
from tests.certificates import run
from tests.certificates.run import GROUPS, NARROW_HASH, WIDE_HASH, WIDTH, Signer, check, members_of
from tests.evidence import samples

PUT_FP16, PUT_FP32, ADD, WIDE = (each.group for each in GROUPS)


def edited(kind, **changes):
    """Return an edit of every record of one kind."""
    return lambda listed: [replace(each, **changes) if isinstance(each, kind) else each for each in listed]


def counted(listed):
    """Return the records with the counts of their end made right."""
    groups = [each.verdict for each in listed if isinstance(each, Group)]
    failed = groups.count(Verdict.FAIL)
    end = samples.end(int(failed > 0), **{verdict.value: groups.count(verdict) for verdict in Verdict})
    return [*listed[:-1], end]


def without_group(name):
    def edit(listed):
        kept = [each for each in listed if getattr(each, "group", None) != name]
        return counted(
            [
                replace(each, groups=tuple(g for g in each.groups if g.group != name))
                if isinstance(each, Plan)
                else each
                for each in kept
            ]
        )

    return edit


def without_requirement(listed):
    listed = without_group(ADD)(listed)
    return [
        replace(each, requirements=tuple(r for r in each.requirements if r.id != "ATOMIC-ADD-001"))
        if isinstance(each, Plan)
        else each
        for each in without_kernel_unused(listed)
    ]


def without_kernel_unused(listed):
    used = {hash_ for each in listed if isinstance(each, Case) for hash_ in each.kernels}
    return [each for each in listed if not isinstance(each, Kernel) or each.hash in used]


def not_applicable(listed):
    return [
        replace(each, not_applicable={"ATOMIC-ADD-001": "this device has no atomics"})
        if isinstance(each, Plan)
        else each
        for each in without_group(ADD)(listed)
    ]


def unsupported(listed):
    def edit(each):
        if not isinstance(each, Plan):
            return each
        needs = tuple(replace(r, needs=("atomic_add",)) if r.id == "ATOMIC-ADD-001" else r for r in each.requirements)
        return replace(
            each,
            requirements=needs,
            unsupported={"ATOMIC-ADD-001": "needs atomic_add"},
            capabilities={"atomic_add": "missing"},
        )

    return [edit(each) for each in without_group(ADD)(listed)]


def reworded(listed):
    def edit(each):
        first, *rest = each.requirements
        return replace(
            each, requirements=(Requirement(first.id, "put copies something", first.source, first.covers), *rest)
        )

    return [edit(each) if isinstance(each, Plan) else each for each in listed]


def swapped_cases(listed):
    at = next(number for number, each in enumerate(listed) if isinstance(each, Case))
    return [*listed[:at], listed[at + 1], listed[at], *listed[at + 2 :]]


def swapped_groups(listed):
    head, first, second, rest = listed[:4], listed[4:7], listed[7:10], listed[10:]
    return [*head, *second, *first, *rest]


def with_copied_case(listed):
    at = next(number for number, each in enumerate(listed) if isinstance(each, Group))
    case, end = listed[at - 1], listed[at]
    drawn = {"type": "Copy", "fields": {"count": 99}}
    copy = replace(case, case=drawn, id=case_id(case.requirement, case.group, drawn))
    return [*listed[:at], copy, replace(end, cases=end.cases + 1), *listed[at + 1 :]]


def without_case(listed):
    at = next(number for number, each in enumerate(listed) if isinstance(each, Group))
    return [*listed[: at - 1], replace(listed[at], cases=listed[at].cases - 1), *listed[at + 1 :]]


def without_kernel(listed):
    kept = [each for each in listed if not (isinstance(each, Kernel) and each.hash == NARROW_HASH)]
    return [
        replace(each, kernels=(), launches={}) if isinstance(each, Case) and each.kernels == (NARROW_HASH,) else each
        for each in kept
    ]


def without_launches(listed):
    return edited(Case, launches={})(listed)


def with_other_kernel(listed):
    """Return records in which a requirement on code was satisfied by a kernel that does not have it."""
    wide = {hash_: run.case(GROUPS[0], 1, hash_).launches[hash_] for hash_ in (WIDE_HASH, NARROW_HASH)}
    return without_kernel_unused(
        [
            replace(each, kernels=(NARROW_HASH,), launches={NARROW_HASH: wide[WIDE_HASH]})
            if isinstance(each, Case) and each.group in (WIDE, PUT_FP16)
            else each
            for each in listed
        ]
    )


def with_wider_fingerprint(listed):
    """Return records in which the narrow kernel is recorded with the figures of the wide one."""
    wide = run.kernel(WIDE_HASH).fingerprint
    return [
        replace(each, fingerprint=wide) if isinstance(each, Kernel) and each.hash == NARROW_HASH else each
        for each in listed
    ]


def with_less_width(listed):
    narrow = run.case(GROUPS[0], 1, NARROW_HASH).launches[NARROW_HASH]
    return [
        replace(each, launches={WIDE_HASH: narrow}) if isinstance(each, Case) and each.group == WIDE else each
        for each in listed
    ]


def without_kernels_of_width(listed):
    """Return records in which a case that passed a requirement on code launched nothing."""
    return without_kernel_unused(
        [
            replace(each, kernels=(), launches={}) if isinstance(each, Case) and each.group == WIDE else each
            for each in listed
        ]
    )


def with_hidden_roots(listed):
    """Return records in which a narrow kernel passed, since its record calls the heap bases an ordinary argument."""
    hidden = Roots(frozenset())
    figures = fingerprint(run.NARROW, roots=hidden).to_json()
    narrow = run.case(GROUPS[0], 1, NARROW_HASH).launches[NARROW_HASH]

    def edit(each):
        if isinstance(each, Kernel) and each.hash == NARROW_HASH:
            return replace(each, roots=hidden.to_json(), fingerprint=figures)
        if isinstance(each, Case) and each.group == WIDE:
            return replace(each, kernels=(NARROW_HASH,), launches={NARROW_HASH: {**narrow, "accesses": []}})
        return each

    return without_kernel_unused([edit(each) for each in listed])


def with_accesses(**changes):
    """Return an edit of every executed access of a case."""

    def edit(each):
        if not isinstance(each, Case):
            return each
        launches = {
            hash_: {**launch, "accesses": [{**access, **changes} for access in launch["accesses"]]}
            for hash_, launch in each.launches.items()
        }
        return replace(each, launches=launches)

    return lambda listed: [edit(each) for each in listed]


def with_no_launch(listed):
    def edit(each):
        if not isinstance(each, Case):
            return each
        return replace(each, launches={hash_: {**launch, "launches": 0} for hash_, launch in each.launches.items()})

    return [edit(each) for each in listed]


def with_cases_of_another_type(listed):
    """Return records in which the cases of a group have another element type than the group is named after."""

    def edit(each):
        if not isinstance(each, Case):
            return each
        drawn = {"type": "Copy", "fields": {**each.case["fields"], "dtype": "int8"}}
        return replace(each, case=drawn, id=case_id(each.requirement, each.group, drawn))

    return [edit(each) for each in listed]


FORGERIES = {
    "a group is removed with its plan entry": without_group(PUT_FP32),
    "a requirement is removed with its groups": without_requirement,
    "a requirement is called not applicable": not_applicable,
    "a requirement is called unsupported": unsupported,
    "a requirement is stated differently": reworded,
    "the device is another one": edited(Run, device="rocm"),
    "the arch is another one": edited(Run, arch="gfx950"),
    "the arch of run and kernels is another one": lambda listed: edited(Kernel, arch="gfx950")(
        edited(Run, arch="gfx950")(listed)
    ),
    "the commit is another one": edited(
        Run, implementation={"name": "iris_under_test", "version": "0.2.0", "commit": "5" * 40, "sha256": "4" * 64}
    ),
    "the implementation is another one": edited(
        Run, implementation={"name": "iris", "version": "0.2.0", "commit": "3" * 40, "sha256": "6" * 64}
    ),
    "the ranks are other ones": edited(Run, ranks=(8,)),
    "the level is another one": edited(Run, level="stress"),
    "the profile is another one": edited(Run, profile="h200-8"),
    "the profile is removed": edited(Run, profile="none"),
    "the seed is another one": edited(Run, seed=7),
    "the dates are later": lambda listed: [
        *edited(Run, started="2026-11-21T02:30:00Z")(listed)[:-1],
        replace(listed[-1], finished="2026-11-21T02:31:00Z"),
    ],
    "the environment is another one": edited(
        Run,
        environment={"python": "3.12.0", "os": "Linux", "cpus": 64, "packages": {"torch": "2.13.0", "triton": "3.6.0"}},
    ),
    "the circumstances are removed": edited(Run, circumstances={"variables": {}, "plugins": {}, "options": []}),
    "cases are in another order": swapped_cases,
    "groups are in another order": swapped_groups,
    "a case is copied under another id": with_copied_case,
    "a case is removed and its group's count edited": without_case,
    "a kernel is dropped with its launches": without_kernel,
    "all launches are dropped": without_launches,
    "a narrow kernel stands for a wide one": with_other_kernel,
    "a kernel has the figures of another one": with_wider_fingerprint,
    "executed accesses are narrower": with_less_width,
    "a case of a requirement on code has no kernel": without_kernels_of_width,
    "the remote accesses of a kernel are hidden": with_hidden_roots,
    "executed accesses move other bytes than their lanes": with_accesses(bytes=5),
    "executed accesses have more lanes than wavefronts": with_accesses(executions=1),
    "kernels of cases have no launch": with_no_launch,
    "cases have another type than their group": with_cases_of_another_type,
    "it is another run": edited(Run, id="another"),
}
SHOWN = {
    "a group is removed with its plan entry": f"has: {PUT_FP32}",
    "a requirement is called not applicable": "the plan calls ATOMIC-ADD-001 not applicable (this device has no",
    "the device is another one": "the run is recorded with device rocm, and level gate on emulated-gfx942 has emulated",
    "the level is another one": "the list of level gate has no profile emulated-gfx942 of level stress",
    "the profile is another one": "the list of level gate has no profile h200-8 of level gate",
    "the seed is another one": "the run is recorded with seed 7, and level gate on emulated-gfx942 has 20",
    "a requirement is removed with its groups": "the plan lacks requirements of the certificate's table: ATOMIC",
    "a requirement is called unsupported": "the plan states requirements differently",
    "a requirement is stated differently": "the plan states requirements differently",
    "the arch is another one": "the run is recorded for gfx950, and has kernels for gfx942",
    "the arch of run and kernels is another one": "recorded for gfx950, and the listing is for gfx942",
    "the ranks are other ones": "the plan has groups of 2 ranks, and the run is recorded with 8",
    "a narrow kernel stands for a wide one": f"passed {WIDTH}, and in its listing remote store accesses are 1 x 2",
    "a kernel has the figures of another one": "recorded with",
    "all launches are dropped": f"passed {WIDTH}, and executed no remote load or store",
    "a case of a requirement on code has no kernel": f"passed {WIDTH}, and launched no kernel whose code could show it",
    "the remote accesses of a kernel are hidden": f"passed {WIDTH}, and no listing of its kernels has a remote load or",
    "executed accesses move other bytes than their lanes": "executed 5 bytes in kernel",
    "executed accesses have more lanes than wavefronts": "with 512 lanes of 16 bytes in 1 executions",
    "kernels of cases have no launch": "with 0 launches",
    "cases have another type than their group": "has dtype=int8, and is recorded as one of RMA-PUT-001[",
    "executed accesses are narrower": f"passed {WIDTH}, and executed a remote store of 2 bytes",
}


@pytest.fixture(scope="module")
def forger(tmp_path_factory):
    """Another person, with another key and the same kernels."""
    return Signer.at(tmp_path_factory.mktemp("forger"))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_coherent_forgery(signer, certificate, forger, name):
    listed = FORGERIES[name](run.records())
    forged = forger.certificate(listed)
    assert read(forger.folder / "evidence.jsonl").problems == [], "the forgery is coherent"

    # Signed by the forger: not the trusted key.
    [first, *_] = check(forged, signer.key.public).problems
    assert f"is signed with the key {forger.key.public.id}, not with {signer.key.public.id}" in first

    # With the signature of the genuine certificate.
    members = members_of(forged)
    genuine = envelope.unpack(members_of(certificate)[archive.STATEMENT])
    statement = envelope.unpack(members[archive.STATEMENT]).payload
    for payload in {statement, genuine.payload}:
        mixed = replace(genuine, payload=payload)
        forged.write_bytes(archive.pack({**members, archive.STATEMENT: envelope.pack(mixed)}))
        assert check(forged, signer.key.public).problems

    # Without a signature.
    unsigned = envelope.pack(envelope.sealed(statement, None))
    forged.write_bytes(archive.pack({**members, archive.STATEMENT: unsigned}))
    assert "the certificate is not signed" in check(forged, signer.key.public).problems[0]

    # What a reader without the key sees.
    problems = check(forged, None).problems
    assert any(SHOWN[name] in problem for problem in problems) if name in SHOWN else problems == ()


def test_a_failing_run_that_is_called_a_pass(signer, forger):
    """Verdict, message, failing case, counts and exit status are edited: what is left is the run that passed."""
    genuine = signer.certificate(run.failing(), "failing.zip")
    assert check(genuine, signer.key.public).manifest["result"] == "FAILED"
    forged = forger.certificate(run.records())
    statement = members_of(genuine)[archive.STATEMENT]
    forged.write_bytes(archive.pack({**members_of(forged), archive.STATEMENT: statement}))
    problems = check(forged, signer.key.public).problems
    assert "evidence.jsonl.gz is not the file that the statement names: its digest differs" in problems
    assert 'the statement, predicate: result is "FAILED", and the evidence gives "PASSED"' in problems


def test_a_file_of_another_run(signer, certificate, forger):
    """The evidence of another run of the same signer, with the documents and the statement of this one."""
    other = signer.certificate(FORGERIES["it is another run"](run.records()), "other.zip")
    assert check(other, signer.key.public).problems == ()
    members = {**members_of(certificate), archive.EVIDENCE: members_of(other)[archive.EVIDENCE]}
    mixed = certificate.with_name("mixed.zip")
    mixed.write_bytes(archive.pack(members))
    problems = check(mixed, signer.key.public).problems
    assert "evidence.jsonl.gz is not the file that the statement names: its digest differs" in problems
    assert 'manifest.json, run: id is "a1b2c3", and the evidence gives "another"' in problems


def test_a_waiver_that_is_added_afterwards(signer, certificate):
    added = certificate.with_name("waived.zip")
    added.write_bytes(archive.pack({**members_of(certificate), "waivers.toml": b'[[waiver]]\nid = "RMA-PUT-001"\n'}))
    problems = check(added, signer.key.public).problems
    assert "the statement does not name waivers.toml" in problems
    assert "waivers.toml was added: the run is recorded without waivers" in problems


def test_a_signature_with_the_id_of_the_trusted_key(signer, certificate, tmp_path):
    """Signed by another key that names itself the trusted one."""
    other = new_key(tmp_path / "other.key")
    members = members_of(certificate)
    payload = envelope.unpack(members[archive.STATEMENT]).payload
    forged = replace(envelope.sealed(payload, other), key_id=signer.key.public.id)
    path = certificate.with_name("named.zip")
    path.write_bytes(archive.pack({**members, archive.STATEMENT: envelope.pack(forged)}))
    [problem] = check(path, signer.key.public).problems
    assert problem.startswith("the signature is not one of the key")
