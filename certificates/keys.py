"""Keys that sign certificates: ECDSA on P-256 (the default of Sigstore's tools) or Ed25519, in PEM files.

A private key is PKCS #8 without a passphrase, readable by its owner only. A key's id is the SHA-256 of its public part
(DER, SubjectPublicKeyInfo) in hex, which ``openssl pkey -pubin -outform DER | sha256sum`` prints too.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from harness.errors import UsageError
from harness.evidence.lines import open_regular

P256, ED25519 = ALGORITHMS = ("ecdsa-p256", "ed25519")

_MAX_BYTES = 64 << 10
_Private: TypeAlias = "EllipticCurvePrivateKey | Ed25519PrivateKey"
_Public: TypeAlias = "EllipticCurvePublicKey | Ed25519PublicKey"


@dataclass(frozen=True)
class PublicKey:
    """A key that signatures are checked with."""

    key: _Public

    @property
    def id(self) -> str:
        """The SHA-256 of the key in hex."""
        return hashlib.sha256(self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Return whether ``signature`` is this key's signature of ``signed``."""
        try:
            if isinstance(self.key, EllipticCurvePublicKey):
                self.key.verify(signature, signed, ECDSA(SHA256()))
            else:
                self.key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A key that certificates are signed with."""

    key: _Private

    @property
    def public(self) -> PublicKey:
        """The key that its signatures are checked with."""
        return PublicKey(self.key.public_key())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``: of ECDSA in DER, of Ed25519 its 64 bytes."""
        if isinstance(self.key, EllipticCurvePrivateKey):
            return self.key.sign(message, ECDSA(SHA256()))
        return self.key.sign(message)


def new_key(path: Path, algorithm: str = P256) -> PrivateKey:
    """Create a key: ``path`` holds its private part with mode 0600, ``path`` with ``.pub`` added its public part.

    Raises UsageError if one of the files exists or cannot be written. A file that exists is never replaced.
    """
    if algorithm not in ALGORITHMS:
        raise UsageError(f"the algorithm of a key is {' or '.join(ALGORITHMS)}, got {algorithm!r:.60}")
    public_path = public_part(path)
    for each in (path, public_path):
        if os.path.lexists(each):
            raise UsageError(f"{each} exists, and a key is never overwritten: remove it, or name another file")
    key = PrivateKey(generate_private_key(SECP256R1()) if algorithm == P256 else Ed25519PrivateKey.generate())
    private = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write(path, private, 0o600)
    _write(public_path, public, 0o644)
    return key


def public_part(path: Path) -> Path:
    """Return the path of the public part of the private key at ``path``."""
    return path.with_name(f"{path.name}.pub")


def load_private(path: Path) -> PrivateKey:
    """Return the private key in a PEM file. UsageError if there is none, or other users may read the file."""
    content, mode = _read(path)
    if mode & 0o077:
        raise UsageError(
            f"{path} may be read by other users (mode {mode & 0o777:04o}), and a key that signs must not: chmod 600 it"
        )
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a passphrase
        raise UsageError(
            f"{path} is not a private key in PEM without a passphrase: create one with iris-harness key new"
        ) from None
    if isinstance(key, Ed25519PrivateKey) or (
        isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)
    ):
        return PrivateKey(key)
    raise UsageError(f"{path} holds a key of another kind: the kinds are {' and '.join(ALGORITHMS)}")


def load_public(path: Path) -> PublicKey:
    """Return the public key in a PEM file. UsageError if there is none."""
    content, _ = _read(path)
    if b"PRIVATE KEY-----" in content:
        raise UsageError(f"{path} is a private key: name its public part, {public_part(path).name}")
    try:
        key = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError(
            f"{path} is not a public key in PEM: name the .pub file that iris-harness key new wrote"
        ) from None
    if isinstance(key, Ed25519PublicKey) or (
        isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)
    ):
        return PublicKey(key)
    raise UsageError(f"{path} holds a key of another kind: the kinds are {' and '.join(ALGORITHMS)}")


def _read(path: Path) -> tuple[bytes, int]:
    try:
        with open_regular(path, follow=True) as file:
            return file.read(_MAX_BYTES), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise UsageError(f"the key {path} cannot be read: {error.strerror or error}") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(content)
    except OSError as error:
        raise UsageError(f"the key {path} cannot be written: {error.strerror or error}") from error
