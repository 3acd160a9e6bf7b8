"""Keys: their files, and every file that is not one."""

import os
import stat

import pytest

from certificates import ALGORITHMS, load_private, load_public, new_key, public_part
from harness.errors import UsageError


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_key(tmp_path, algorithm):
    path = tmp_path / "a.key"
    before = os.umask(0)
    try:
        key = new_key(path, algorithm)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public_part(path).read_bytes()
    loaded, public = load_private(path), load_public(public_part(path))
    assert loaded.public.id == public.id == key.public.id
    assert public.verifies(loaded.sign(b"message"), b"message")
    assert not public.verifies(loaded.sign(b"message"), b"massage")
    assert not public.verifies(b"", b"message")


@pytest.mark.parametrize("suffix", ["", ".pub"])
def test_an_existing_file_is_never_replaced(tmp_path, suffix):
    (tmp_path / f"a.key{suffix}").write_text("mine")
    with pytest.raises(UsageError, match="exists, and a key is never overwritten"):
        new_key(tmp_path / "a.key")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "a.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists"):
        new_key(tmp_path / "a.key")
    assert not (tmp_path / "elsewhere").exists()


def test_a_private_key_that_others_may_read(tmp_path):
    new_key(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(UsageError, match=r"may be read by other users \(mode 0640\).*chmod 600"):
        load_private(tmp_path / "a.key")


def test_files_that_are_not_keys(tmp_path):
    new_key(tmp_path / "a.key")
    with pytest.raises(UsageError, match=r"is a private key: name its public part, a\.key\.pub"):
        load_public(tmp_path / "a.key")
    (tmp_path / "a.key.pub").chmod(0o600)
    with pytest.raises(UsageError, match="is not a private key in PEM"):
        load_private(tmp_path / "a.key.pub")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UsageError, match="is not a public key in PEM"):
        load_public(tmp_path / "text")
    for load in (load_public, load_private):
        with pytest.raises(UsageError, match="cannot be read"):
            load(tmp_path)
        with pytest.raises(UsageError, match="cannot be read"):
            load(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be written"):
        new_key(tmp_path / "missing" / "a.key")
    with pytest.raises(UsageError, match="algorithm of a key is"):
        new_key(tmp_path / "b.key", "rsa")


def test_a_key_of_another_kind(tmp_path):
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "a.pub").write_bytes(public)
    with pytest.raises(UsageError, match="another kind"):
        load_public(tmp_path / "a.pub")
    (tmp_path / "a").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "a").chmod(0o600)
    with pytest.raises(UsageError, match="another kind"):
        load_private(tmp_path / "a")
