"""The webhook server over real TLS: reviews answered, bad input refused, a new certificate from the next connection."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import msgspec
import pytest

from hostler.errors import Complaint
from hostler.metal.kinds.conversion import convert
from hostler.metal.kinds.webhooks import mutate, validate
from hostler.settings.readers import Address
from hostler.webhooks import server as limits
from hostler.webhooks.certificates import Pair, make_pair
from hostler.webhooks.reviews import AdmissionRequest, Verdict
from hostler.webhooks.server import WebhookServer

GROUP = "infrastructure.cluster.x-k8s.io"
Json = dict[str, Any]
PAIR = make_pair(("localhost",), time.time())
OTHER = make_pair(("localhost",), time.time())


class Asker:
    """An API server, as far as webhooks see it; it trusts one CA."""

    def __init__(self, server: WebhookServer) -> None:
        self.server = server
        self.counted: Counter[tuple[str, str, str]] = Counter()

    async def post(self, path: str, body: bytes | Json, trusted: Pair = PAIR) -> tuple[int, bytes]:
        context = ssl.create_default_context(cadata=trusted.authority.decode())
        data = BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://localhost:{self.server.port}{path}", data=data, ssl=context) as answer,
        ):
            return answer.status, await answer.read()

    async def ask(self, path: str, body: Json) -> Json:
        status, answer = await self.post(path, body)
        assert status == 200, answer
        found = msgspec.json.decode(answer)
        assert (found["apiVersion"], found["kind"]) == (body["apiVersion"], body["kind"])
        response: Json = found["response"]
        assert response["uid"] == body["request"]["uid"]
        return response


@asynccontextmanager
async def serving(admit: Callable[[AdmissionRequest], Verdict] = validate) -> AsyncIterator[Asker]:
    counted: Counter[tuple[str, str, str]] = Counter()
    server = WebhookServer(
        Address("127.0.0.1", 0), mutate, admit, convert, kinds=frozenset({"Metal3Cluster", "Metal3Data"}),
        answered=lambda *labels: counted.update([labels]), setting="HOSTLER_METAL_WEBHOOKS_ADDRESS",
    )  # fmt: skip
    assert server.use(PAIR)
    await server.start()
    asker = Asker(server)
    asker.counted = counted
    try:
        yield asker
    finally:
        await server.stop()


def run(story: Callable[[Asker], Awaitable[None]]) -> None:
    async def play() -> None:
        async with serving() as asker:
            await story(asker)

    asyncio.run(play())


def made(kind: str, version: str = "v1beta2", **body: Any) -> Json:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "m", "namespace": "n"}, **body}


def review(thing: Json | None, before: Json | None = None, *, kind: str = "Metal3Cluster", group: str = GROUP) -> Json:
    request = {
        "uid": "u", "kind": {"group": group, "version": "v1beta2", "kind": kind}, "namespace": "n", "name": "m",
        "operation": "UPDATE" if before else "CREATE", "object": thing, "oldObject": before,
    }  # fmt: skip
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def conversion(*things: Json, to: str = "v1beta2") -> Json:
    request = {"uid": "u", "desiredAPIVersion": f"{GROUP}/{to}", "objects": list(things)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


CLUSTER = made("Metal3Cluster", spec={"controlPlaneEndpoint": {"host": "h"}})


def test_defaults_are_a_patch_of_what_changed() -> None:
    async def story(asker: Asker) -> None:
        response = await asker.ask("/mutate", review(CLUSTER))
        patch = msgspec.json.decode(msgspec.json.decode(f'"{response["patch"]}"', type=bytes))
        spec = {"controlPlaneEndpoint": {"host": "h", "port": 6443}}
        assert patch == [{"op": "add", "path": "/spec", "value": spec}]
        again = await asker.ask("/mutate", review({**CLUSTER, "spec": spec}))
        assert "patch" not in again
        assert asker.counted == {
            ("Metal3Cluster", "mutate", "changed"): 1, ("Metal3Cluster", "mutate", "allowed"): 1,
        }  # fmt: skip

    run(story)


def test_a_refusal_names_the_object_and_the_field() -> None:
    async def story(asker: Asker) -> None:
        response = await asker.ask("/validate", review(made("Metal3Cluster", spec={})))
        assert response["allowed"] is False
        assert response["status"]["code"] == 422
        assert response["status"]["message"] == (
            f'Metal3Cluster.{GROUP} "m" is invalid: spec.controlPlaneEndpoint.host: is required'
        )

    run(story)


def test_an_object_that_was_wrong_before_passes_with_a_warning() -> None:
    async def story(asker: Asker) -> None:
        wrong = made("Metal3Cluster", spec={})
        response = await asker.ask("/validate", review(wrong, wrong))
        assert response["allowed"] is True
        assert response["warnings"] == ["spec.controlPlaneEndpoint.host: is required (as before)"]

    run(story)


def test_a_kind_without_rules_passes_with_a_warning() -> None:
    async def story(asker: Asker) -> None:
        for path in ("/validate", "/mutate"):
            response = await asker.ask(path, review({}, kind="Pod", group=""))
            assert response["allowed"] is True
            assert "nothing was checked" in response["warnings"][0]
        assert {kind for kind, _, _ in asker.counted} == {"other"}

    run(story)


def test_a_review_without_an_object_is_refused() -> None:
    async def story(asker: Asker) -> None:
        assert (await asker.ask("/validate", review(None)))["status"]["code"] == 400

    run(story)


def test_a_list_is_converted_in_one_answer() -> None:
    async def story(asker: Asker) -> None:
        things = [made("Metal3Cluster", "v1beta1", spec={"noCloudProvider": True}), made("Metal3Cluster")]
        response = await asker.ask("/convert", conversion(*things))
        assert response["result"] == {"status": "Success"}
        assert [one["apiVersion"] for one in response["convertedObjects"]] == [f"{GROUP}/v1beta2"] * 2

    run(story)


def test_one_object_that_cannot_be_converted_is_named_and_none_is_changed() -> None:
    async def story(asker: Asker) -> None:
        wrong = made("Metal3Remediation", "v1beta1", spec={"strategy": {"timeout": "soon"}})
        response = await asker.ask("/convert", conversion(made("Metal3Cluster", "v1beta1"), wrong))
        assert response["convertedObjects"] == []
        assert response["result"]["status"] == "Failure"
        said = response["result"]["message"]
        assert said.startswith(f"Metal3Remediation n/m cannot be converted to {GROUP}/v1beta2")
        assert "'soon'" in said
        assert asker.counted == {("Metal3Cluster", "convert", "failed"): 1}

    run(story)


def test_an_unknown_version_is_a_failure_of_that_object() -> None:
    async def story(asker: Asker) -> None:
        response = await asker.ask("/convert", conversion(made("Metal3Data"), to="v1"))
        assert "knows no version" in response["result"]["message"]

    run(story)


BAD: dict[str, tuple[str, bytes, int]] = {
    "nothing": ("/validate", b"", 400),
    "half a review": ("/validate", json.dumps(review(CLUSTER)).encode()[:-9], 400),
    "no JSON": ("/convert", b"\x00\xff", 400),
    "a list": ("/mutate", b"[]", 400),
    "a conversion sent to admission": ("/mutate", json.dumps(conversion()).encode(), 400),
    "an older version": ("/validate", json.dumps({**review(CLUSTER), "apiVersion": "v1beta1"}).encode(), 400),
    "no uid": ("/validate", b'{"apiVersion":"admission.k8s.io/v1","request":{}}', 400),
    "too deep": ("/validate", b'{"request":' * 100_000, 400),
    "too large": ("/validate", b" " * (limits.LARGEST_REVIEW + 1), 413),
    "another path": ("/metrics", b"", 404),
}


@pytest.mark.parametrize(("path", "body", "status"), BAD.values(), ids=BAD)
def test_what_is_no_review_is_refused(path: str, body: bytes, status: int) -> None:
    async def story(asker: Asker) -> None:
        assert (await asker.post(path, body))[0] == status
        assert (await asker.ask("/validate", review(CLUSTER)))["allowed"] is True

    run(story)


def test_an_object_nested_too_deeply_is_refused_by_name() -> None:
    depth = 400
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    body = json.dumps(review(CLUSTER)).encode().replace(b'"host": "h"', b'"host": ' + nested)

    async def story(asker: Asker) -> None:
        status, answer = await asker.post("/mutate", body)
        assert status in (200, 400)
        if status == 200 and not msgspec.json.decode(answer)["response"]["allowed"]:
            assert b"Metal3Cluster n/m" in answer

    run(story)


def test_a_bug_in_a_rule_is_an_answer_and_counted() -> None:
    def broken(_: AdmissionRequest) -> Verdict:
        raise ZeroDivisionError

    async def story() -> None:
        async with serving(broken) as asker:
            assert (await asker.post("/validate", review(CLUSTER)))[0] == 500
            assert asker.counted == {("other", "validate", "bug"): 1}

    asyncio.run(story())


def test_the_next_connection_shows_the_new_certificate() -> None:
    async def story(asker: Asker) -> None:
        assert asker.server.use(OTHER)
        assert asker.server.shown == OTHER
        assert (await asker.post("/validate", review(CLUSTER), trusted=OTHER))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asker.post("/validate", review(CLUSTER), trusted=PAIR)

    run(story)


def test_a_certificate_that_cannot_be_used_changes_nothing() -> None:
    async def story(asker: Asker) -> None:
        assert not asker.server.use(Pair(b"", b"x", b"y"))
        assert asker.server.shown == PAIR
        assert (await asker.post("/validate", review(CLUSTER)))[0] == 200

    run(story)


def test_connections_without_a_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SILENT_SECONDS", 0.1)

    async def story(asker: Asker) -> None:
        context = ssl.create_default_context(cadata=PAIR.authority.decode())
        reader, writer = await asyncio.open_connection("localhost", asker.server.port, ssl=context)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()

    run(story)


def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE_SECONDS", 0.2)

    async def story(asker: Asker) -> None:
        context = ssl.create_default_context(cadata=PAIR.authority.decode())
        reader, writer = await asyncio.open_connection("localhost", asker.server.port, ssl=context)
        writer.write(b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{")
        assert b" 503 " in await asyncio.wait_for(reader.readline(), 60)
        writer.close()

    run(story)


def test_a_taken_port_is_a_sentence() -> None:
    async def story(asker: Asker) -> None:
        second = WebhookServer(
            Address("127.0.0.1", asker.server.port), mutate, validate, convert, kinds=frozenset(),
            answered=lambda *_: None, setting="HOSTLER_METAL_WEBHOOKS_ADDRESS",
        )  # fmt: skip
        second.use(PAIR)
        with pytest.raises(Complaint, match="cannot listen") as said:
            await second.start()
        assert "HOSTLER_METAL_WEBHOOKS_ADDRESS" in said.value.hint

    run(story)
