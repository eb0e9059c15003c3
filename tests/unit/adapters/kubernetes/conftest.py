from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.builders import NOW


@pytest.fixture(scope="session")
def pem() -> str:
    """A self-signed certificate, for use as a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    until = NOW + timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), NOW, until)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
