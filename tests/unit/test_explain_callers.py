"""Who is answered without a credential, and which credential counts: what a caller writes never opens anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.explain.callers import (
    LONGEST_TOKEN,
    Caller,
    Credential,
    Proof,
    Refusal,
    address_of,
    credential_of,
    is_local,
    is_loopback,
    is_open,
)

LOCAL = Caller("/v1/status", "127.0.0.1", "127.0.0.1", host="127.0.0.1:8080")
REMOTE = Caller("/v1/status", "10.1.2.3", "10.1.2.4", host="10.1.2.4:8080")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_every_address_of_loopback_is_one(address: str) -> None:
    assert is_loopback(address)
    assert is_local(replace(LOCAL, peer=address, local=address))


ELSEWHERE = ("", "localhost", "10.0.0.1", "::ffff:10.0.0.1", "128.0.0.1", "fe80::1", "0.0.0.0", "::")


@pytest.mark.parametrize("address", ELSEWHERE)
def test_another_address_is_not(address: str) -> None:
    assert not is_loopback(address)
    assert not is_local(replace(LOCAL, peer=address))
    assert not is_local(replace(LOCAL, local=address)), "a mesh's proxy comes from loopback, to the pod's address"


@pytest.mark.parametrize("host", ["", "localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
def test_a_local_caller_may_name_us_as_loopback(host: str) -> None:
    assert is_local(replace(LOCAL, host=host))


REBOUND = ("evil.example", "localhost.evil.example:8080", "10.1.2.4", "[::2]", "[", "x@127.0.0.2.x")


@pytest.mark.parametrize("host", REBOUND)
def test_a_page_that_rebinds_its_name_is_not_local(host: str) -> None:
    assert not is_local(replace(LOCAL, host=host))


def test_what_was_forwarded_is_not_local() -> None:
    assert not is_local(replace(LOCAL, forwarded=True))


WORDS = st.text(max_size=20)


@given(WORDS, st.booleans(), st.lists(WORDS, max_size=2), st.lists(WORDS, max_size=2), st.booleans())
def test_nothing_a_remote_caller_writes_makes_it_local(
    host: str, forwarded: bool, tokens: list[str], authorizations: list[str], metrics_open: bool
) -> None:
    caller = replace(REMOTE, host=host, forwarded=forwarded, tokens=tuple(tokens), authorizations=tuple(authorizations))
    assert not is_open(caller, metrics_open=metrics_open)


def test_probes_are_open_and_metrics_where_told() -> None:
    for path in ("/healthz", "/readyz"):
        assert is_open(replace(REMOTE, path=path), metrics_open=False)
    assert is_open(replace(REMOTE, path="/metrics"), metrics_open=True)
    for path in ("/metrics", "/healthz/", "/HEALTHZ", "//healthz", "/healthz/../v1/status", "/metrics/x", ""):
        assert not is_open(replace(REMOTE, path=path), metrics_open=False), path
    for path in ("/metrics/", "/metrics/../v1/config", "/v1/status"):
        assert not is_open(replace(REMOTE, path=path), metrics_open=True), path


def test_the_ends_of_a_connection() -> None:
    assert address_of(("10.0.0.1", 80)) == "10.0.0.1"
    assert address_of(("::1", 80, 0, 0)) == "::1"
    assert address_of(None) == address_of("") == address_of("/run/socket") == address_of(()) == ""


def test_one_credential_counts() -> None:
    assert credential_of(REMOTE) is Refusal.NO_CREDENTIAL
    assert credential_of(replace(REMOTE, tokens=("a.b.c",))) == Credential(Proof.READER, "a.b.c")
    for scheme in ("Bearer", "bearer", "BEARER"):
        found = credential_of(replace(REMOTE, authorizations=(f"{scheme} a.b.c",)))
        assert found == Credential(Proof.BEARER, "a.b.c")
    both = replace(REMOTE, tokens=("a",), authorizations=("Bearer b",))
    assert credential_of(both) == Credential(Proof.READER, "a")


WRONG_TOKENS = [("",), ("a", "a"), ("a b",), ("a,b",), ("ä",), ("x" * (LONGEST_TOKEN + 1),)]
WRONG_HEADERS = [
    ("Bearer",),
    ("Bearer ",),
    ("Basic YTpi",),
    ("Bearer a", "Bearer b"),
    ("Bearer a b",),
    ("",),
    ("a.b.c",),
]


@pytest.mark.parametrize("tokens", WRONG_TOKENS)
def test_a_wrong_token_is_not_made_good_by_another(tokens: tuple[str, ...]) -> None:
    caller = replace(REMOTE, tokens=tokens, authorizations=("Bearer good",))
    assert credential_of(caller) is Refusal.BAD_CREDENTIAL


@pytest.mark.parametrize("authorizations", WRONG_HEADERS)
def test_another_kind_of_authorization_is_refused(authorizations: tuple[str, ...]) -> None:
    assert credential_of(replace(REMOTE, authorizations=authorizations)) is Refusal.BAD_CREDENTIAL


def test_a_credential_does_not_show_its_token() -> None:
    assert "secret" not in repr(Credential(Proof.READER, "secret"))
