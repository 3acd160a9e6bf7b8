"""A signer with the certificate of a small run, made once for each module."""

import pytest

from certificates import verification
from tests.certificates.run import Signer, records


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    return Signer.at(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def certificate(signer):
    return signer.certificate(records(), "genuine.zip")


@pytest.fixture
def installed(monkeypatch, signer):
    """Make the suite of the small run the one that is installed here."""
    monkeypatch.setattr(verification, "sources_of", lambda package: "2" * 64)
    monkeypatch.setattr(verification, "installed_table", lambda: signer.folder / "requirements.toml")
    monkeypatch.setattr(verification, "installed_list", lambda level: signer.folder / f"{level}.toml")
