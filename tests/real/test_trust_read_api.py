"""Who may read what the operator knows: people through the API server, Prometheus with a token, others nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from hostler.errors import Exit
from hostler.explain.callers import AUDIENCE, READER, TOKEN_HEADER, Refusal
from hostler.sandbox import Sandbox
from tests.answer_schemas import FOLDER as SCHEMAS
from tests.answer_schemas import check_answer
from tests.real.accounts import kubeconfig_with
from tests.real.auditing import who
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator, own_address
from tests.real.people import (
    ADMIN,
    NOBODY,
    OPERATOR,
    VIEWER,
    World,
    account,
    binding,
    may,
    people_world,
    request_token,
)
from tests.real.role_table import NO_ROLE, TABLE, commands_of_the_cli, documented_rows, furnished, outcome

MakeNode = Callable[..., str]
Answer = tuple[int, str]


@pytest.fixture(scope="module")
def world(
    sandbox: Sandbox, home: str, tmp_path_factory: pytest.TempPathFactory, eventually: Eventually
) -> Iterator[World]:
    with people_world(sandbox, home, tmp_path_factory.mktemp("people"), eventually) as made:
        yield made


def get(url: str, path: str, **headers: str) -> Answer:
    """Asks the pod itself: the status, and the answer or the operator's reason for a refusal."""
    place = url.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read().decode()
    finally:
        connection.close()
    return answer.status, json.loads(body)["reason"] if answer.status >= 400 else body


def bring(url: str, path: str, token: str) -> Answer:
    return get(url, path, **{TOKEN_HEADER: token})


def bear(url: str, path: str, token: str) -> Answer:
    return get(url, path, Authorization=f"Bearer {token}")


# -- callers that are not known


SPOOFED = {
    "X-Forwarded-For": "127.0.0.1",
    "Forwarded": "for=127.0.0.1",
    "Host": "localhost",
    "X-Real-Ip": "::1",
    "X-Remote-User": "system:admin",
    "Authorization": "Basic YTpi",
}


@pytest.mark.parametrize("path", ["/v1/status", "/v1/config", "/v1/explain/node/x", "/v1/nothing", "/metrics", "/"])
def test_a_stranger_who_reaches_the_pod_reads_nothing(world: World, path: str) -> None:
    url = world.leader().url
    assert get(url, path) == (401, Refusal.NO_CREDENTIAL)
    for name, value in SPOOFED.items():
        assert get(url, path, **{name: value})[0] == 401, name


def test_probes_need_no_credential(world: World) -> None:
    assert [get(world.leader().url, path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2


def _part(data: object) -> str:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _signed(key: rsa.RSAPrivateKey, header: dict[str, Any], claims: dict[str, Any]) -> str:
    text = f"{_part(header)}.{_part(claims)}"
    return f"{text}.{_part(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _header(token: str) -> dict[str, Any]:
    part = token.split(".")[0]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def forgeries(world: World, namespace: str) -> Iterator[tuple[str, str]]:
    """Tokens that must not be taken for the reader's, each by what is wrong with it."""
    good = world.token()
    claims, header = _claims(good), _header(good)
    pem = (world.sandbox.layout.pki / "tokens.key").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert bring(world.leader().url, "/v1/status", _signed(key, header, claims))[0] == 200, "this is how one is made"
    past = {name: claims[name] - 7200 for name in ("exp", "iat", "nbf")}
    yield "expired", _signed(key, header, {**claims, **past})
    yield "of another cluster", _signed(rsa.generate_private_key(65537, 2048), header, claims)
    yield "alg none", f"{_part({**header, 'alg': 'none'})}.{_part(claims)}."
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    text = f"{_part({**header, 'alg': 'HS256'})}.{_part(claims)}"
    yield "HS256 by the public key", f"{text}.{_part(hmac.new(public, text.encode(), hashlib.sha256).digest())}"
    yield "of another audience", world.token(audience="another")
    yield "of the API server's audience", world.token(audience="")
    yield "of another account", world.token("default")
    yield "of another namespace", world.token(namespace=namespace)
    yield "without its signature", good.rpartition(".")[0] + "."
    yield "no token", "x"


def test_only_a_current_token_of_our_own_reader_counts(world: World, namespace: str) -> None:
    world.sandbox.apply(account(namespace, READER))
    url, said = world.leader().url, {}
    for wrong, token in forgeries(world, namespace):
        said[wrong] = bring(url, "/v1/config", token)
    assert said == dict.fromkeys(said, (401, Refusal.BAD_CREDENTIAL))
    good = world.token()
    assert get(url, "/v1/config", **{TOKEN_HEADER: "x", "Authorization": f"Bearer {good}"})[0] == 401
    assert bear(url, "/v1/config", good) == (401, Refusal.BAD_CREDENTIAL), "its audience is not the API server's"
    assert bear(url, "/v1/config", world.token(audience="")) == (403, Refusal.NOT_ALLOWED), "it has no rights"
    assert bring(url, "/v1/config", good)[0] == 200


def test_metrics_are_read_by_those_who_may(world: World) -> None:
    url, prometheus = world.leader().url, world.token("prometheus", audience="")
    status, page = bear(url, "/metrics", prometheus)
    assert (status, 'hostler_reads_refused_total{why="NoCredential"}' in page) == (200, True)
    counted = next(line for line in page.splitlines() if line.startswith('hostler_reads_refused_total{why="NoCred'))
    assert float(counted.rpartition(" ")[2]) > 0, "refusals were counted"
    assert bear(url, "/v1/config", prometheus) == (403, Refusal.NOT_ALLOWED)
    assert bear(url, "/metrics", world.token("default", audience="")) == (403, Refusal.NOT_ALLOWED)
    assert bear(url, "/metrics", "nonsense") == (401, Refusal.BAD_CREDENTIAL)


def test_without_its_right_the_operator_answers_nobody(world: World, sandbox: Sandbox, tmp_path: Path) -> None:
    address, token = own_address(), world.token()
    flags = ("--dry-run", "--http-address", f"{address}:0", "--no-metrics-authentication")
    with operator(sandbox, tmp_path, world.namespace, *flags, name="powerless", rights=False) as powerless:
        url = powerless.url
        assert bring(url, "/v1/config", token) == (503, Refusal.REVIEW_FORBIDDEN)
        assert get(url, "/v1/config") == (401, Refusal.NO_CREDENTIAL)
        assert get(url, "/metrics")[0] == 200, "it was opened"
        powerless.said("callers of the read API cannot be checked")
        code, _, said = world.cli(VIEWER, "status", "--operator", url)
        assert (code, "it may not create tokenreviews" in said) == (Exit.UNREACHABLE, True)
    assert token not in powerless.log.read_text()


# -- people


def test_a_viewer_reads_all_and_changes_nothing(world: World, make_node: MakeNode, eventually: Eventually) -> None:
    node = make_node()
    code, said, _ = world.cli(VIEWER, "status", "-o", "json")
    assert (code, json.loads(said)["leads"]) == (Exit.OK, True), "of two replicas the leader answers"
    eventually(lambda: world.cli(VIEWER, "explain", f"node/{node}")[0] == 0, 60, "it has seen the node")
    assert world.cli(VIEWER, "plan", f"node/{node}")[0] == 0
    assert "HOSTLER_HTTP_ADDRESS" in world.cli(VIEWER, "config", "--running")[1]
    code, _, said = world.cli(VIEWER, "explain", "cow/bella")
    assert (code, 'Nothing here explains a "cow"' in said) == (Exit.REFUSED, True)
    found = {one["what"]: one["level"] for one in json.loads(world.cli(VIEWER, "doctor", "-o", "json")[1])}
    assert (found["operator"], found["nodes"]) == ("ok", "problem"), "nodes are not in `view`"
    file = world.folder / "bundle.tar.gz"
    assert world.cli(VIEWER, "bundle", "--file", str(file))[0] == Exit.FAILED, "it lacks what a viewer may not read"
    with tarfile.open(file) as archive:
        assert "hostler-bundle/operator/status.json" in archive.getnames()
        texts = [part.read().decode() for one in archive if (part := archive.extractfile(one)) is not None]
    assert not [one for one in texts if "eyJ" in one], "no token is in it"
    code, _, said = world.cli(VIEWER, "hold", node, "--why", "x")
    assert (code, "cannot get resource" in said) == (Exit.REFUSED, True), said
    for words in (("patch", "fleets.hostler.dev"), ("create", "pauses.hostler.dev"), ("patch", "nodes")):
        assert not may(world, VIEWER, *words)


def test_a_viewer_reaches_no_pod_and_no_other_service(world: World) -> None:
    assert may(world, VIEWER, "get", "services/proxy", "hostler:http")
    assert may(world, VIEWER, "create", "serviceaccounts/token", READER)
    for words in (
        ("get", "services/proxy", "other:http"),
        ("get", "services/proxy", "hostler:8090"),
        ("get", "services/proxy", "https:hostler:http"),
        ("get", "services/proxy"),
        ("create", "services/proxy", "hostler:http"),
        ("get", "pods/proxy"),
        ("get", "pods/proxy", "hostler-0"),
        ("create", "serviceaccounts/token", "default"),
        ("create", "serviceaccounts/token"),
    ):
        assert not may(world, VIEWER, *words), words


def test_an_operator_holds_and_cannot_decide_for_the_fleet(world: World, make_node: MakeNode) -> None:
    node = make_node()
    assert world.cli(OPERATOR, "status")[0] == 0
    code, _, said = world.cli(OPERATOR, "hold", node, "--why", "x", "--beyond-ceiling")
    assert code == 0, said
    assert world.sandbox.get("node", node)["spec"]["unschedulable"] is True
    code, _, said = world.cli(OPERATOR, "drain", node, "--why", "x", "--beyond-ceiling")
    assert code == 0, said
    assert world.cli(OPERATOR, "release", node)[0] == 0
    for words in (("create", "pauses.hostler.dev"), ("delete", "pauses.hostler.dev"), ("create", "pods/eviction")):
        assert may(world, OPERATOR, *words), words
    for words in (("patch", "fleets.hostler.dev"), ("get", "secrets"), ("create", "pods"), ("get", "pods/proxy")):
        assert not may(world, OPERATOR, *words), words
    code, _, said = world.cli(OPERATOR, "join", "expect", "some-host")
    assert (code, "fleets.hostler.dev" in said) == (Exit.REFUSED, True), said


def test_an_admin_decides_for_the_fleet(world: World) -> None:
    assert hostler(world.sandbox.kubeconfig, "crds", "--apply").returncode == 0
    assert world.cli(ADMIN, "status")[0] == 0
    code, _, said = world.cli(ADMIN, "join", "expect", "read-api-host")
    assert code == 0, said
    world.sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    for words in (
        ("get", "secrets"),
        ("create", "secrets"),
        ("get", "pods/proxy"),
        ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ):
        assert not may(world, ADMIN, *words), words


def test_who_has_no_right_is_told_which_one_to_ask_for(world: World) -> None:
    code, said, why = world.cli(NOBODY, "status")
    assert (code, said) == (Exit.REFUSED, "")
    assert 'Ask for "get" on "leases.coordination.k8s.io"' in why
    assert "hostler-viewer" in why
    code, said, why = world.cli(NOBODY, "status", "--operator", world.leader().url)
    assert (code, said) == (Exit.REFUSED, "")
    assert f'Ask for "create" on "serviceaccounts/token" of {READER}' in why


def test_every_command_works_or_is_refused_by_role_as_documented(
    world: World, namespace: str, make_node: MakeNode, tmp_path: Path
) -> None:
    """And what is refused names the right that is missing."""
    assert hostler(world.sandbox.kubeconfig, "crds", "--apply").returncode == 0
    pause = {"apiVersion": "hostler.dev/v1alpha1", "kind": "Pause", "metadata": {"name": "by-another"}, "spec": {}}
    found: dict[str, list[str]] = {command: [] for command, _, _ in TABLE}
    with furnished(world.sandbox, world.namespace, namespace, make_node(), tmp_path) as names:
        for role in (VIEWER, OPERATOR, ADMIN):
            names["BUNDLE"] = str(tmp_path / f"{role}.tar.gz")
            for command, rest, _ in TABLE:
                if command == "resume":
                    world.sandbox.apply(pause)
                words = f"{command} {rest}"
                for word, name in names.items():
                    words = words.replace(word, name)
                # The one who may do all is the one whose answers are whole: they are what the docs say.
                documented = role == ADMIN and (SCHEMAS / f"{command.replace(' ', '-')}.json").exists()
                code, out, err = world.cli(role, *words.split(), *(("-o", "json") if documented else ()))
                found[command].append(outcome(code, out, err))
                if documented:
                    check_answer(command, out)
                if command == "resume":
                    world.sandbox.kubectl("delete", "pause", "by-another", "--ignore-not-found")
    assert {command: tuple(cells) for command, cells in found.items()} == {command: can for command, _, can in TABLE}


def test_the_table_of_roles_has_every_command_and_is_the_one_of_the_docs() -> None:
    known = {command for command, _, _ in TABLE}
    others = [one for one in commands_of_the_cli() - known if not one.startswith(NO_ROLE)]
    assert (others, known - commands_of_the_cli()) == ([], set())
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text().splitlines()
    head = page.index("| command | hostler-viewer | hostler-operator | hostler-admin |")
    assert page[head + 2 : head + 2 + len(TABLE) + 1] == [*documented_rows(), ""]


class _Rogue(BaseHTTPRequestHandler):
    """What answers at a URL that a user named by mistake."""

    seen: list[dict[str, str]] = []  # noqa: RUF012  # of one test

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        body = json.dumps({"reason": Refusal.NO_CREDENTIAL, "message": "Who are you?"}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_named_url_gets_the_reader_s_token_and_never_ours(world: World) -> None:
    assert world.cli(VIEWER, "status", "--operator", world.leader().url)[0] == 0
    own = request_token(world.sandbox, world.namespace, "prometheus", [])
    world.sandbox.apply(binding(f"{world.namespace}-5", f"{world.namespace}-viewer", {
        "kind": "ServiceAccount", "name": "prometheus", "namespace": world.namespace,
    }))  # fmt: skip
    login = kubeconfig_with(world.sandbox.kubeconfig, world.folder / "login.kubeconfig", own)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Rogue) as rogue:
        Thread(target=rogue.serve_forever, daemon=True).start()
        named = ("--operator-namespace", world.namespace, "--operator", f"http://127.0.0.1:{rogue.server_port}")
        done = hostler(login, "status", *named)
        rogue.shutdown()
    world.sandbox.kubectl("delete", "clusterrolebinding", f"{world.namespace}-5")
    assert done.returncode == Exit.REFUSED, done.stdout
    sent = _claims(next(one[TOKEN_HEADER] for one in _Rogue.seen if TOKEN_HEADER in one))
    assert (sent["aud"], sent["sub"]) == ([AUDIENCE], f"system:serviceaccount:{world.namespace}:{READER}")
    assert own not in json.dumps(_Rogue.seen)
    assert TOKEN_HEADER not in _Rogue.seen[0], "it is brought only where it is asked for"


# -- what goes wrong


def reviews(world: World, running: Running) -> int:
    asked = [one for one in world.sandbox.audit(running.user) if who(one) == running.user]
    return sum(one.get("objectRef", {}).get("resource") == "tokenreviews" for one in asked)


def test_a_flood_of_wrong_tokens_hardly_reaches_the_api_server(world: World) -> None:
    """Of the replica that does not lead, last but one: its peers have had their share of wrong tokens then."""
    follower = next(one for one in world.replicas if one is not world.leader())
    good = world.token()
    assert bring(follower.url, "/v1/status", good)[0] == 200
    before, began = reviews(world, follower), time.monotonic()
    said = [bring(follower.url, "/v1/status", f"wrong-{number}")[1] for number in range(100)]
    allowed = 20 + 2 * (time.monotonic() - began)
    assert set(said) == {Refusal.BAD_CREDENTIAL, Refusal.TOO_MANY_ATTEMPTS}
    assert said.count(Refusal.BAD_CREDENTIAL) <= allowed
    assert bring(follower.url, "/v1/status", good)[0] == 200, "who is known already goes on"
    assert 0 < reviews(world, follower) - before <= allowed


def test_the_replica_that_is_left_answers(world: World, eventually: Eventually) -> None:
    gone = world.leader()
    left = next(one for one in world.replicas if one is not gone)
    assert gone.stop() == 0
    left.said("leading")

    def answered() -> bool:
        code, said, _ = world.cli(OPERATOR, "status", "-o", "json")
        return code == 0 and bool(json.loads(said)["leads"])

    eventually(answered, 60, "the other replica answers, and leads")
    for one in world.replicas:
        assert "eyJ" not in one.log.read_text(), "no token is in a log"
