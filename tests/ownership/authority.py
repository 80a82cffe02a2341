"""A local timestamping authority: certificates made here, answers by the openssl program's `ts -reply`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from irwm.ownership import cms
from tools.waiting import PATIENCE

CONFIG = """
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
{chain}
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
tsa_name = yes
ess_cert_id_alg = sha256
"""
YEAR = timedelta(days=365)
ANY_USE, SERVER = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, ExtendedKeyUsageOID.SERVER_AUTH
TIME_STAMPING, CODE_SIGNING = ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.CODE_SIGNING


@asn1.sequence
class Response:
    """A response whose token may be anything."""

    status: cms.Status
    token: asn1.TLV


def response(token: asn1.TLV, status: int = 0) -> bytes:
    return asn1.encode_der(Response(status=cms.Status(code=status), token=token))


@dataclass(frozen=True)
class Authority:
    """A root and a timestamping certificate below it, in a separate folder."""

    folder: Path

    @property
    def root(self) -> bytes:
        return (self.folder / "root.pem").read_bytes()

    def answer(self, query: bytes) -> bytes:
        """The response to a request: granted, or a refusal if the authority does not like the request."""
        return _openssl(self.folder, "ts", "-reply", "-config", "ts.cnf", data=query, ok=(0, 1))

    def sign(self, tst_info: bytes) -> bytes:
        """A response whose token is signed with this certificate of any kind, without the program's own checks."""
        kind = "1.2.840.113549.1.9.16.1.4"
        command = ("cms", "-sign", "-binary", "-nodetach", "-cades", "-econtent_type", kind, "-outform", "DER")
        chain = ("-certfile", "between.pem") if (self.folder / "between.pem").exists() else ()
        token = _openssl(self.folder, *command, *chain, "-signer", "tsa.pem", "-inkey", "tsa.key", data=tst_info)
        return response(asn1.decode_der(asn1.TLV, token))


def _openssl(folder: Path, *arguments: str, data: bytes, ok: tuple[int, ...] = (0,)) -> bytes:
    (folder / "in").write_bytes(data)
    given = ("-queryfile", "in") if arguments[0] == "ts" else ("-in", "in")
    command = ["openssl", *arguments, *given, "-out", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode in ok, done.stderr.decode()
    return (folder / "out").read_bytes()


def make_authority(
    folder: Path,
    name: str = "Test Timestamps",
    *,
    starts: datetime | None = None,
    lasts: timedelta = YEAR,
    usages: tuple[x509.ObjectIdentifier, ...] = (TIME_STAMPING,),
    critical: bool = True,
    with_root: bool = False,
    between: tuple[x509.ObjectIdentifier, ...] | None = None,
    root_usages: tuple[x509.ObjectIdentifier, ...] = (),
) -> Authority:
    """An authority in a new folder.

    Args:
        starts, lasts: when its certificate is valid; by default for a year from yesterday.
        usages, critical: the stated usages of the certificate.
        with_root: whether answers include the root's certificate.
        between: the stated usages of a certificate between root and signer, () if unstated; None for no certificate.
        root_usages: the stated usages of the root.
    """
    folder.mkdir()
    starts = starts or datetime.now(UTC) - timedelta(days=1)
    root = issuer = _Party.new(f"{name} Root")
    root_certificate = _certificate(root, root, usages=root_usages)
    if between is not None:
        issuer = _Party.new(f"{name} Between")
        middle = _certificate(issuer, root, usages=between)
        (folder / "between.pem").write_bytes(middle.public_bytes(Encoding.PEM))
    own = _Party.new(name)
    leaf = _certificate(own, issuer, usages=usages, critical=critical, valid=(starts, lasts))
    files = {
        "root.pem": root_certificate.public_bytes(Encoding.PEM),
        "tsa.pem": leaf.public_bytes(Encoding.PEM),
        "tsa.key": own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "serial": b"01\n",
        "ts.cnf": CONFIG.format(folder=folder, chain=f"certs = {folder}/root.pem" if with_root else "").encode(),
    }
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return Authority(folder)


@dataclass(frozen=True)
class _Party:
    """A name with a private key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @staticmethod
    def new(name: str) -> _Party:
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return _Party(named, ec.generate_private_key(ec.SECP256R1()))


def _certificate(
    subject: _Party,
    issuer: _Party,
    usages: tuple[x509.ObjectIdentifier, ...],
    critical: bool = False,
    valid: tuple[datetime, timedelta] | None = None,
) -> x509.Certificate:
    """A certificate; without a time of validity, that of an authority, valid for decades."""
    starts, lasts = valid or (datetime(2000, 1, 1, tzinfo=UTC), YEAR * 80)
    made = x509.CertificateBuilder(
        issuer_name=issuer.name,
        subject_name=subject.name,
        public_key=subject.key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=starts,
        not_valid_after=starts + lasts,
    )
    if valid is None:
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if usages:
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=critical)
    return made.sign(issuer.key, hashes.SHA256())
