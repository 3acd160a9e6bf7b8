"""Signatures of certificates are verified by other people's tools: openssl, securesystemslib, sigstore-js."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from certificates import ALGORITHMS, P256, archive, envelope, load_public, new_key
from tests.certificates.run import members_of, records

SIGSTORE = ("@sigstore/bundle@4.0.0", "@sigstore/verify@3.1.1")


@pytest.fixture(scope="module", params=ALGORITHMS)
def signed(request, tmp_path_factory, signer):
    """The algorithm, the Sigstore bundle of a certificate that is signed with a new key, and the public key's file."""
    folder = tmp_path_factory.mktemp("key")
    key = new_key(folder / "a.key", request.param)
    certificate = signer.certificate(records(), f"{request.param}.zip", key=key)
    bundle = folder / archive.STATEMENT
    bundle.write_bytes(members_of(certificate)[archive.STATEMENT])
    return request.param, bundle, folder / "a.key.pub"


def changed(bundle, folder):
    """Return a bundle with another statement and the old signature."""
    old = envelope.unpack(bundle.read_bytes())
    payload = old.payload.replace(b"PASSED", b"FAILED")
    assert payload != old.payload
    path = folder / "changed.json"
    path.write_bytes(envelope.pack(envelope.Envelope(payload, old.key_id, old.signature)))
    return path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl, version 3")
def test_openssl(signed, tmp_path):
    algorithm, bundle, public = signed

    def status(file):
        opened = envelope.unpack(file.read_bytes())
        (tmp_path / "message").write_bytes(envelope.signed_bytes(opened.payload))
        (tmp_path / "signature").write_bytes(opened.signature)
        options = (
            f"dgst -sha256 -verify {public} -signature signature message"
            if algorithm == P256
            else f"pkeyutl -verify -pubin -inkey {public} -rawin -in message -sigfile signature"
        )
        command = ["openssl", *options.split()]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert status(bundle) == 0
    assert status(changed(bundle, tmp_path)) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl, version 3")
def test_openssl_prints_the_key_id(signed):
    _, _, public = signed
    command = ["openssl", "pkey", "-pubin", "-in", public, "-outform", "DER"]
    der = subprocess.run(command, capture_output=True, check=True).stdout
    digest = subprocess.run(["openssl", "dgst", "-sha256", "-r"], input=der, capture_output=True, check=True).stdout
    assert digest.split()[0].decode() == load_public(public).id


def test_securesystemslib(signed, tmp_path):
    _, bundle, public = signed
    key_id = load_public(public).id
    key = SSlibKey.from_crypto(load_public(public).key, keyid=key_id)
    opened = Envelope.from_dict(json.loads(bundle.read_text())["dsseEnvelope"])
    assert opened.verify([key], 1) == {key_id: key}
    assert opened.pae() == envelope.signed_bytes(opened.payload)
    forged = Envelope.from_dict(json.loads(changed(bundle, tmp_path).read_text())["dsseEnvelope"])
    with pytest.raises(VerificationError):
        forged.verify([key], 1)


@pytest.mark.nightly
def test_sigstore_js(signed, tmp_path):
    _, bundle, public = signed
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("needs Node.js 20 or newer with npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", *SIGSTORE]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip(f"needs the npm packages {' and '.join(SIGSTORE)}, and npm could not install them")
    program = shutil.copy(Path(__file__).with_name("sigstore_verify.js"), tmp_path)

    def run(file):
        return subprocess.run(["node", program, file, public], capture_output=True, text=True, timeout=60, check=False)

    genuine = run(bundle)
    assert genuine.returncode == 0, genuine.stderr
    assert "signature verification failed" in run(changed(bundle, tmp_path)).stderr
