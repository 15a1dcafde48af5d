"""Asking a kubelet for the certificate it serves: where it is to be found is the kubelet's own telling."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from hostler.host.facts import Unknown
from hostler.join.served_certificate import _handshake


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70000), ("127.0.0.1", -1), (f"{'a' * 70}.invalid", 1), ("a..b", 1), ("\0", 1)]
)
def test_an_address_that_is_none_is_unknown(host: str, port: int) -> None:
    """One node must not keep the approvals of all others back."""
    asked = _handshake(host, port, ssl.create_default_context(), 0.0)
    assert isinstance(asyncio.run(asked), Unknown)
