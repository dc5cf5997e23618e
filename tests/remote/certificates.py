"""A certificate for this machine, as an operator would get one."""

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

ISSUED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
EXPIRES = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Files in PEM."""

    chain: Path
    key: Path
    key_with_password: Path


def make_certificate(folder: Path) -> Certificate:
    """Make a certificate that its own key signed, for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ISSUED)
        .not_valid_after(EXPIRES)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(
        chain=folder / "chain.pem", key=folder / "key.pem", key_with_password=folder / "key_with_password.pem"
    )
    made.chain.write_bytes(signed.public_bytes(Encoding.PEM))
    encryptions: list[tuple[Path, KeySerializationEncryption]] = [
        (made.key, NoEncryption()),
        (made.key_with_password, BestAvailableEncryption(b"password")),
    ]
    for path, encryption in encryptions:
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return made
