"""Certificates: the evidence of a run as one signed file, which others check without the machine that made it.

``make`` writes one from the evidence of a finished run, and ``verify`` checks one. A certificate is an uncompressed zip
file whose members are listed in ``archive``. ``statement.sigstore.json`` names all other members with their digests and
carries the signature; ``docs/certificates.md`` describes the form. Nothing here imports torch or Triton.
"""

from certificates.keys import (
    ALGORITHMS,
    P256,
    PrivateKey,
    PublicKey,
    load_private,
    load_public,
    new_key,
    public_part,
)
from certificates.making import listing_of, make
from certificates.verification import Verification, verify

__all__ = [
    "ALGORITHMS",
    "P256",
    "PrivateKey",
    "PublicKey",
    "Verification",
    "listing_of",
    "load_private",
    "load_public",
    "make",
    "new_key",
    "public_part",
    "verify",
]
