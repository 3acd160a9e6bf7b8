"""A small finished run and its certificate: three requirements, two kernels with their listings, a few cases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from certificates import Verification, archive, documents, envelope, make, verify
from certificates.keys import PrivateKey, PublicKey, new_key
from conformance import recorded
from harness.evidence import (
    Case,
    Group,
    Kernel,
    Plan,
    PlannedGroup,
    Record,
    Requirement,
    Verdict,
    case_id,
    read_table,
)
from harness.evidence.mustpass import Hardware, MustPass, Part, to_text
from harness.isa import Roots, fingerprint
from tests.evidence import samples

CREATED = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
NOW = CREATED + timedelta(days=30)
WIDTH = "ISA-WIDTH-001"

TABLE = """
[[requirement]]
id = "RMA-PUT-001"
statement = "put copies exactly the masked elements to the peer"
source = "docs/spec/rma.md#put"
covers = ["put"]

[[requirement]]
id = "ATOMIC-ADD-001"
statement = "atomic_add returns the old value"
source = "docs/spec/atomics.md#add"
covers = ["atomic_add"]

[[requirement]]
id = "ISA-WIDTH-001"
statement = "remote accesses are 16 bytes per lane"
source = "docs/spec/rma.md#vector-width"
covers = ["put"]
"""

_LISTING = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
{name}:
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 4, v0
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dwordx4 v[4:7], v1, s[6:7]
\ts_load_dwordx4 s[8:11], s[4:5], 0x0
\ts_waitcnt lgkmcnt(0)
\ts_sub_u32 s12, s10, s8
\ts_subb_u32 s13, s11, s9
\ts_add_u32 s12, s12, s6
\ts_addc_u32 s13, s13, s7
\ts_waitcnt vmcnt(0)
\t{store} v1, {data}, s[12:13]
\ts_endpgm
\t.amdhsa_kernel {name}
\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.end_amdhsa_kernel
\t.amdgpu_metadata
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .agpr_count:     0
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .sgpr_count:     20
    .sgpr_spill_count: 0
    .vgpr_count:     8
    .vgpr_spill_count: 0
"""
WIDE = _LISTING.format(name="put_wide", store="global_store_dwordx4", data="v[4:7]")
NARROW = _LISTING.format(name="put_narrow", store="global_store_short", data="v4")
LISTINGS = {"a" * 64: WIDE, "b" * 64: NARROW}
WIDE_HASH, NARROW_HASH = LISTINGS


def kernel(hash_: str) -> Kernel:
    text, roots = LISTINGS[hash_], Roots(frozenset({0}))
    return Kernel(
        hash=hash_,
        name="put_wide" if text is WIDE else "put_narrow",
        arch="gfx942",
        fingerprint=fingerprint(text, roots=roots).to_json(),
        listing_sha256=hashlib.sha256(text.encode()).hexdigest(),
        roots=roots.to_json(),
    )


def group(requirement: str, dtype: str) -> PlannedGroup:
    return PlannedGroup(
        f"{requirement}[ranks=2,dtype={dtype}]",
        requirement,
        f"conformance/test_{requirement[:3].lower()}.py::test[{dtype}]",
    )


GROUPS = (
    group("RMA-PUT-001", "fp16"),
    group("RMA-PUT-001", "fp32"),
    group("ATOMIC-ADD-001", "int32"),
    group(WIDTH, "fp16"),
)


PROFILE = "emulated-gfx942"
MUSTPASS = to_text(
    MustPass(
        "0.2.0",
        "gate",
        20,
        {PROFILE: Hardware("emulated", "gfx942", (2,), 0, ())},
        (Part((PROFILE,), ("published", "extended"), tuple(each.group for each in GROUPS), {}),),
    )
)


def case(planned: PlannedGroup, number: int, hash_: str, **changes: Any) -> Case:
    drawn: dict[str, Any] = {"type": "Copy", "fields": {"count": number}}
    if planned.requirement == WIDTH:  # rank 0 puts the 8,192 bytes that the launch below stored
        drawn["fields"] |= {"targets": [[1], []], "n": 4096, "dtype": "fp16"}
        drawn["data"] = {"op": "put"}
    width = 16 if hash_ == WIDE_HASH else 2
    access = {
        "kind": "store", "width": width, "where": "remote", "peer": True, "executions": 8, "lanes": 512,
        "bytes": 512 * width,
    }  # fmt: skip
    values: dict[str, Any] = {
        "id": case_id(planned.requirement, planned.group, drawn),
        "requirement": planned.requirement,
        "group": planned.group,
        "nodeid": planned.nodeid,
        "case": drawn,
        "seed": 20,
        "phase": "generate",
        "verdict": Verdict.PASS,
        "repeat": "iris-harness replay 0",
        "kernels": (hash_,),
        "launches": {hash_: {"launches": 1, "accesses": [access]}},
    }
    return Case(**{**values, **changes})


def records() -> list[Record]:
    """Return the records of a complete run that passed, of a library whose sources are known."""
    packages = {name: {"commit": "1" * 40, "sha256": "2" * 64} for name in ("conformance", "fixtures", "harness")}
    run = samples.run(
        ranks=(2,),
        profile=PROFILE,
        implementation={"name": "iris_under_test", "version": "0.2.0", "commit": "3" * 40, "sha256": "4" * 64},
        harness={"version": "0.2.0", "packages": packages},
    )
    listed: list[Record] = [run, Plan(groups=GROUPS, requirements=requirements())]
    listed += [kernel(WIDE_HASH), kernel(NARROW_HASH)]
    for planned, hash_ in zip(GROUPS, (WIDE_HASH, NARROW_HASH, NARROW_HASH, WIDE_HASH), strict=True):
        listed += [case(planned, 1, hash_), case(planned, 2, hash_)]
        listed.append(Group(planned.group, planned.requirement, Verdict.PASS, 2))
    counts = {verdict.value: 4 if verdict is Verdict.PASS else 0 for verdict in Verdict}
    return [*listed, samples.end(**counts)]


def failing() -> list[Record]:
    """Return the same run with one case that failed."""
    listed = records()
    at = next(number for number, each in enumerate(listed) if isinstance(each, Case))
    end = next(number for number, each in enumerate(listed) if isinstance(each, Group))
    case_record, group_record = listed[at], listed[end]
    assert isinstance(case_record, Case) and isinstance(group_record, Group)
    listed[at] = replace(case_record, verdict=Verdict.FAIL, message="heap differs")
    listed[end] = replace(group_record, verdict=Verdict.FAIL, failing_case=case_record.id, message="heap differs")
    return [*listed[:-1], samples.end(1, **{"pass": 3, "fail": 1})]


def requirements() -> tuple[Requirement, ...]:
    return (
        Requirement(
            "RMA-PUT-001", "put copies exactly the masked elements to the peer", "docs/spec/rma.md#put", ("put",)
        ),
        Requirement("ATOMIC-ADD-001", "atomic_add returns the old value", "docs/spec/atomics.md#add", ("atomic_add",)),
        Requirement(WIDTH, "remote accesses are 16 bytes per lane", "docs/spec/rma.md#vector-width", ("put",)),
    )


@dataclass(frozen=True)
class Signer:
    """A folder with a run, its kernels and the signer's key."""

    folder: Path
    key: PrivateKey

    @classmethod
    def at(cls, folder: Path) -> Signer:
        folder.mkdir(parents=True, exist_ok=True)
        for hash_, text in LISTINGS.items():
            (folder / "cache" / hash_).mkdir(parents=True)
            (folder / "cache" / hash_ / "kernel.amdgcn").write_text(text)
        (folder / "requirements.toml").write_text(TABLE)
        (folder / "gate.toml").write_text(MUSTPASS)
        assert set(read_table(folder / "requirements.toml")) == {each.id for each in requirements()}
        return cls(folder, new_key(folder / "signer.key"))

    def certificate(
        self, listed: Sequence[Record], name: str = "certificate.zip", *, key: PrivateKey | None = None
    ) -> Path:
        """Return the certificate of a run with these records."""
        return self.made(samples.write(self.folder / "evidence.jsonl", list(listed)), name, key=key)

    def made(self, evidence: Path, name: str = "certificate.zip", *, key: PrivateKey | None = None) -> Path:
        """Return the certificate of the evidence in a file."""
        output = self.folder / name
        make(
            evidence, output, key or self.key, CREATED, lambda hash_: self.folder / "cache" / hash_,
            table=self.folder / "requirements.toml", mustpass=self.folder / "gate.toml",
        )  # fmt: skip
        return output


def check(path: Path, key: PublicKey | None) -> Verification:
    return verify(path, key, NOW, recorded)


def members_of(path: Path) -> dict[str, bytes]:
    members, problems = archive.unpack(path.read_bytes())
    assert problems == []
    return members


def rewritten(
    path: Path, change: Callable[[dict[str, bytes]], None], key: PrivateKey | None, *, name: str = "forged.zip"
) -> Path:
    """Return a copy of a certificate with changed members, about which a new statement is made.

    With ``key`` it is signed with that key; without, it keeps the signature of the old statement.
    """
    members = members_of(path)
    old = envelope.unpack(members[archive.STATEMENT])
    change(members)
    statement = json.loads(old.payload)
    named = documents.member_subjects(members)
    statement["subject"] = named + [each for each in statement["subject"] if not archive.known(each["name"])]
    payload = documents.to_bytes(statement)
    sealed = envelope.sealed(payload, key) if key else replace(old, payload=payload)
    members[archive.STATEMENT] = envelope.pack(sealed)
    forged = path.with_name(name)
    forged.write_bytes(archive.pack(members))
    return forged


def lab(folder: Path) -> Path:
    """Write the files that the pages name into ``folder``: the key lab.key, lab.key.pub and certificate.zip, which is
    signed with it. Return the certificate."""
    certificate = Signer.at(folder / "signer").certificate(records(), key=new_key(folder / "lab.key"))
    return certificate.replace(folder / "certificate.zip")


def renamed(listed: Sequence[Record], old: str, new: str) -> list[Record]:
    """Return records in which the names of groups have ``new`` instead of ``old``, with the ids of cases made right."""
    result: list[Record] = []
    for each in listed:
        if isinstance(each, Plan):
            groups = tuple(replace(planned, group=planned.group.replace(old, new)) for planned in each.groups)
            each = replace(each, groups=groups)
        elif isinstance(each, Group):
            each = replace(each, group=each.group.replace(old, new))
        elif isinstance(each, Case):
            group = each.group.replace(old, new)
            each = replace(each, group=group, id=case_id(each.requirement, group, each.case))
        result.append(each)
    return result
