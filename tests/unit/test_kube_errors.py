"""Answers that are none: what comes of them in types and numbers."""

from __future__ import annotations

import pytest

from hostler.kube.errors import LONGEST_WAIT, NotFound, ServerError, TooManyRequests, from_response, is_foreign


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("7", b"{}", 7.0),
        (None, b'{"details":{"retryAfterSeconds":3}}', 3.0),
        ("2", b'{"details":{"retryAfterSeconds":3}}', 2.0),
        ("1000000", b"{}", LONGEST_WAIT),
        (None, b'{"details":{"retryAfterSeconds":1' + b"0" * 400 + b"}}", LONGEST_WAIT),
        ("nan", b"{}", None),
        ("inf", b"{}", None),
        ("-5", b"{}", None),
        ("0", b"{}", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", b"{}", None),
        (None, b'{"details":{"retryAfterSeconds":"soon"}}', None),
        (None, b'{"details":[]}', None),
    ],
)
def test_how_long_to_stay_away_is_a_number_one_can_wait(header: str | None, body: bytes, seconds: float | None) -> None:
    error = from_response(429, body, header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == seconds


def test_a_page_of_something_else_is_quoted_and_cut_short() -> None:
    error = from_response(404, b"<html>" + b"x" * 5000, None)
    assert isinstance(error, NotFound)
    assert error.message.startswith("<html>")
    assert len(error.message) <= 200
    assert isinstance(from_response(599, b"", None), ServerError)


@pytest.mark.parametrize(
    ("code", "body", "foreign"),
    [
        (404, b'{"kind":"Status","reason":"NotFound","message":"pods \\"a\\" not found","code":404}', False),
        (404, b"404 page not found\n", False),
        (404, b"default backend - 404", True),
        (404, b"<html>Not Found</html>", True),
        (404, b'{"type":"error","status":"404"}', True),
        (404, b"", True),
        (503, b"no backend", False),
    ],
)
def test_a_404_of_somebody_else_is_told_from_an_api_server_s(code: int, body: bytes, foreign: bool) -> None:
    assert is_foreign(from_response(code, body, None), body, "/apis/hostler.dev/v1alpha1/fleets") is foreign


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/a/pods/b/eviction", "/api/v1/nodes/a", "/apis/apps/v1/namespaces/a/deployments/b",
        "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
    ],
)  # fmt: skip
def test_no_api_server_says_that_there_are_no_pods(path: str) -> None:
    """A load balancer written in Go has its words. Believed, a pod that was not evicted would count as gone."""
    body = b"404 page not found\n"
    assert is_foreign(from_response(404, body, None), body, path)
    named = b'{"kind":"Status","reason":"NotFound","message":"pods \\"b\\" not found","code":404}'
    assert not is_foreign(from_response(404, named, None), named, path)
