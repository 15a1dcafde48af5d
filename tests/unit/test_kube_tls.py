"""TLS: what a connection and a certificate cost, and from when until when a certificate is valid."""

from __future__ import annotations

import subprocess
import sys
from asyncio import sslproto
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from hostler.kube.tls import BUFFER, check_validity, small_buffers, validity
from tests.unit.kube_pki import Authority

AUTHORITY = Authority()

# Days from now. Times until 2049 are written with two digits for the year, later ones with four.
SPANS = [(-1.0, 10.0), (-27_000.0, 8_000.0), (-1.0, 20_000.0), (9_000.0, 20_000.0)]


@pytest.mark.parametrize("days", SPANS)
def test_the_validity_read_is_the_one_that_was_signed(days: tuple[float, float]) -> None:
    pem = AUTHORITY.issue("someone", days=days).certificate
    signed = x509.load_pem_x509_certificate(pem)
    assert validity(b"some words before\n" + pem) == (signed.not_valid_before_utc, signed.not_valid_after_utc)
    trusted = pem.replace(b" CERTIFICATE-", b" TRUSTED CERTIFICATE-")
    assert validity(trusted) == (signed.not_valid_before_utc, signed.not_valid_after_utc)


@pytest.mark.parametrize(
    "form", [b"", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END", b"-----BEGIN CERTIFICATE-----\nMA\n-----END"]
)
def test_a_form_that_only_openssl_reads_is_left_to_the_server(form: bytes) -> None:
    check_validity(form, "it", datetime.now(UTC))


def test_a_right_pair_needs_no_library_of_ten_megabytes(tmp_path: Path) -> None:
    pair = AUTHORITY.issue("someone")
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    script = (
        "import pathlib, ssl, sys; from hostler.kube.tls import load_pair\n"
        "read = lambda name: pathlib.Path(sys.argv[1], name).read_bytes()\n"
        "load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), read('crt'), read('key'), about='it')\n"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)


def test_a_connection_reads_into_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)  # put back afterwards
    assert sslproto.SSLProtocol.max_size > BUFFER
    small_buffers()
    assert sslproto.SSLProtocol.max_size == BUFFER
