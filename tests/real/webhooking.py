"""Webhooks of an operator that runs beside the API server: registered at its port on loopback, and taken off."""

from __future__ import annotations

import base64
import copy
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hostler.metal.kinds.webhook_objects import CONVERT, DEFINITIONS, conversion_of, webhook_configurations
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.metal_world import Api

Json = dict[str, Any]
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_loopback(client: Json, port: int, authority: bytes) -> Json:
    """A `clientConfig` as the chart has it, but at this port of this machine."""
    bundle = base64.b64encode(authority).decode()
    return {"url": f"https://127.0.0.1:{port}{client['service']['path']}", "caBundle": bundle}


def configurations(port: int, authority: bytes) -> list[Json]:
    made = copy.deepcopy(list(webhook_configurations("any")))
    for one in made:
        for webhook in one["webhooks"]:
            webhook["clientConfig"] = on_loopback(webhook["clientConfig"], port, authority)
    return made


def configuration_path(one: Json) -> str:
    return f"{_ADMISSION}/{one['kind'].lower()}s/{one['metadata']['name']}"


def definition_path(name: str) -> str:
    return f"{_DEFINITIONS}/{name}"


def served_definitions(api: Api) -> list[str]:
    """Those of the provider's CRDs that this API server has."""
    return [name for name in DEFINITIONS if api.get(definition_path(name))]


@contextmanager
def registered(box: Sandbox, port: int, authority: bytes) -> Iterator[None]:
    """Requests go to this port; afterwards to nobody, and the CRDs convert as they did before."""
    made = configurations(port, authority)
    conversion = copy.deepcopy(conversion_of("any"))
    conversion["webhook"]["clientConfig"] = on_loopback({"service": {"path": CONVERT}}, port, authority)
    with closing(Api(box)) as api:
        names = served_definitions(api)
        try:
            for name in names:
                api.patch(definition_path(name), {"spec": {"conversion": conversion}})
            create(box, made)
            yield
        finally:
            for one in made:
                api.delete(configuration_path(one))
            for name in names:
                off = {"strategy": "None", "webhook": None}
                api.patch(definition_path(name), {"spec": {"conversion": off}})


def handshake(port: int, bundle: bytes) -> str:
    """A new connection, as an API server makes it that trusts this bundle; what is wrong with it, if anything."""
    try:
        context = ssl.create_default_context(cadata=bundle.decode())
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return ""
    except OSError as error:
        return f"handshake: {error}"


@dataclass
class Load:
    """One request after the other until it is told to stop; what was not answered as it should be is kept."""

    ask: Callable[[], str]  # what is wrong with the answer; empty: nothing
    wrong: list[str] = field(default_factory=list)
    asked: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.is_set():
            if why := self.ask():
                self.wrong.append(why)
            self.asked += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(timeout=120)
