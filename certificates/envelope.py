"""Signed statements: a DSSE envelope around an in-toto statement, in a Sigstore bundle.

The signed bytes are ``DSSEv1 LENGTH TYPE LENGTH PAYLOAD``, with lengths in bytes as decimal numbers. ``pack`` writes
one form only, and ``unpack`` accepts no other: each byte of an envelope has one possible value for its content.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from certificates.keys import PrivateKey, PublicKey
from harness.evidence import parse

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"


@dataclass(frozen=True)
class Envelope:
    """A statement in bytes, with the id of the key that signed it and the signature; both empty if it is unsigned."""

    payload: bytes
    key_id: str = ""
    signature: bytes = b""

    def problem_with(self, key: PublicKey) -> str | None:
        """Return None if ``key`` signed the statement, else a sentence that states why it did not."""
        if not self.signature:
            return f"the certificate is not signed, and the key {key.id} was expected"
        if self.key_id != key.id:
            return f"the certificate is signed with the key {self.key_id:.80}, not with {key.id}"
        if not key.verifies(self.signature, signed_bytes(self.payload)):
            return f"the signature is not one of the key {key.id} over this statement: one of both was changed"
        return None


def signed_bytes(payload: bytes) -> bytes:
    """Return the bytes that are signed for a statement: DSSE's pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sealed(payload: bytes, key: PrivateKey | None) -> Envelope:
    """Return ``payload`` signed with ``key``; unsigned if that is None."""
    if key is None:
        return Envelope(payload)
    return Envelope(payload, key.public.id, key.sign(signed_bytes(payload)))


def pack(envelope: Envelope) -> bytes:
    """Return an envelope as a Sigstore bundle in JSON."""
    material, signatures = {}, []
    if envelope.signature:
        hint = _base64(bytes.fromhex(envelope.key_id))
        material = {"publicKey": {"hint": hint}}
        signatures = [{"keyid": envelope.key_id, "sig": _base64(envelope.signature)}]
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": _base64(envelope.payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": signatures,
        },
    }
    return json.dumps(bundle, indent=1).encode() + b"\n"


def unpack(content: bytes) -> Envelope:
    """Return the envelope in a Sigstore bundle. ValueError, with a clause, unless ``pack`` wrote these bytes."""
    plain = parse(content)
    try:
        inner: Any = plain["dsseEnvelope"]
        payload = base64.b64decode(inner["payload"], validate=True)
        envelope = Envelope(payload)
        if inner["signatures"]:
            [signature] = inner["signatures"]
            if not signature["sig"]:
                raise ValueError
            envelope = Envelope(payload, signature["keyid"], base64.b64decode(signature["sig"], validate=True))
        again = pack(envelope)
    except (ValueError, TypeError, LookupError, binascii.Error):
        raise ValueError("is not a Sigstore bundle with one DSSE envelope and at most one signature") from None
    if again != content:
        raise ValueError("is not in the form that iris-harness writes: bytes of it were changed")
    return envelope


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
