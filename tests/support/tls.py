"""Makes certificates for one test run: an authority, a server, a client, and another authority.

Made here and never kept in the repository, so that none can expire or leak.
"""

from __future__ import annotations

import atexit
import datetime
import ipaddress
import shutil
import ssl
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files. `other_ca` signed none of them."""

    ca: str
    server: str
    server_key: str
    client: str
    client_key: str
    other_ca: str

    def server_context(self, *, ask_client: bool = False) -> ssl.SSLContext:
        """For a listener; with `ask_client` only clients with a certificate get in."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.load_cert_chain(self.server, self.server_key)
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def passing_context(begins: datetime.timedelta, ends: datetime.timedelta) -> ssl.SSLContext:
    """For a listener whose certificate, of an unknown authority, is valid from and until then."""
    ca_key, ca = _authority("Quorlock test authority for a while")
    key, certificate = _signed(
        "server", ExtendedKeyUsageOID.SERVER_AUTH, ca, ca_key, begins=begins, ends=ends
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory(prefix="quorlock-tls-") as directory:
        chain = _write(Path(directory) / "server.pem", _pem(certificate))
        context.load_cert_chain(chain, _write(Path(directory) / "server.key", _key_pem(key)))
    return context


@cache
def certificates() -> Certificates:
    """One set a process: making keys takes time."""
    directory = Path(tempfile.mkdtemp(prefix="quorlock-tls-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    ca_key, ca = _authority("Quorlock test authority")
    _, other = _authority("Somebody else's authority")
    paths = {
        "ca": _write(directory / "ca.pem", _pem(ca)),
        "other_ca": _write(directory / "other-ca.pem", _pem(other)),
    }
    for name, usage in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        key, certificate = _signed(name, usage, ca, ca_key)
        paths[name] = _write(directory / f"{name}.pem", _pem(certificate))
        paths[f"{name}_key"] = _write(directory / f"{name}.key", _key_pem(key))
    return Certificates(**paths)


def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _template(name, _name(name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _signed(
    name: str,
    usage: x509.ObjectIdentifier,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    **valid: datetime.timedelta,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _template(f"quorlock test {name}", ca.subject, key, **valid)
        # Strict verifiers refuse an end certificate without these.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return key, certificate


def _template(
    name: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.timedelta = datetime.timedelta(hours=-1),
    ends: datetime.timedelta = datetime.timedelta(days=2),
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(subject_key, critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)
