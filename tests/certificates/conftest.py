"""A signer with the certificate of a small run, made once for each module."""

import pytest

from tests.certificates.run import Signer, records


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    return Signer.at(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def certificate(signer):
    return signer.certificate(records(), "genuine.zip")
