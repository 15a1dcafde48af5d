"""Small, blocking HTTP calls to the parts of one sandbox: health, etcd, the simulator's control endpoint."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from hostler.errors import Complaint, Exit
from hostler.sandbox.model import Layout

HOST = "127.0.0.1"


def trust(layout: Layout, person: str | None = None) -> ssl.SSLContext:
    """TLS that trusts this sandbox's CA only, with the certificate of one of its people."""
    context = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
    if person:
        context.load_cert_chain(layout.pki / f"{person}.crt", layout.pki / f"{person}.key")
    return context


def call(
    port: int,
    method: str,
    path: str,
    body: object = None,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float = 30.0,
    accept: str = "*/*",
) -> tuple[int, bytes]:
    """One request on a connection of its own; OSError if nobody listens."""
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    else:
        connection = http.client.HTTPSConnection(HOST, port, timeout=timeout, context=tls)
    try:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept, **({"Content-Type": "application/json"} if data else {})}
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"port {port} does not speak HTTP as expected: {error!r}") from error
    finally:
        connection.close()


def healthy(port: int, path: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a health page says 200. Nobody listening is an answer too: not yet."""
    try:
        return call(port, "GET", path, tls=tls, timeout=2.0)[0] == 200
    except OSError:
        return False


def ask(
    what: str,
    port: int,
    method: str,
    path: str,
    body: object = None,
    *,
    tls: ssl.SSLContext | None = None,
    accept: str = "*/*",
) -> dict[str, Any]:
    """A JSON call that either answers or becomes a sentence. `what` names the other side."""
    try:
        code, data = call(port, method, path, body, tls=tls, accept=accept)
    except OSError as error:
        raise Complaint(
            f"{what} does not answer on {HOST}:{port} ({error}).",
            hint="`hostler sandbox status` shows what is alive.",
            code=Exit.UNREACHABLE,
        ) from error
    try:
        answer = json.loads(data or b"{}")
    except ValueError:
        answer = {"error": data.decode(errors="replace").strip()}
    if code >= 300:
        said = answer.get("error") or answer.get("message") or f"HTTP {code}"
        raise Complaint(f"{what} refused: {said}", code=Exit.REFUSED)
    return dict(answer)
