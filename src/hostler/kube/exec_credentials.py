"""Credentials from a command: kubeconfig's `exec`, the way of cloud providers and single sign-on tools."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from hostler.errors import Complaint, Exit
from hostler.instant import parse
from hostler.kube.clock import Clock
from hostler.kube.errors import Unreachable
from hostler.kube.kubeconfig import Chosen, Exec, wrong

log = structlog.get_logger("hostler.exec")

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PATIENCE = 60.0  # seconds for a command without a terminal
PATIENCE_WITH_PERSON = 300.0
LARGEST_ANSWER = 1 << 20
EARLY = 10.0  # renew this many seconds before the end, so that no request travels with a dying token
REST = 5.0  # many requests may be refused together; the command runs once for all of them


class NoCredentials(Complaint, Unreachable):
    """We cannot authenticate: an error for the user at start, a reason to try again in a loop."""


@dataclass(frozen=True, slots=True)
class Login:
    """What authenticates us for now: headers, or a certificate with its key, or both."""

    headers: Mapping[str, str]
    pair: tuple[bytes, bytes] | None = None


class ExecStatus(msgspec.Struct, rename="camel", frozen=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class ExecCredential(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    api_version: str = ""
    status: ExecStatus | None = None


class ExecLogin:
    """Runs the command when needed: at first, before its answer expires, and after the server refused it."""

    def __init__(self, chosen: Chosen, exec_: Exec, *, clock: Clock = time.time, patience: float = PATIENCE) -> None:
        self._exec = exec_
        self._about = f"{chosen.user_origin.label}, user {chosen.user_name!r}, exec plugin {exec_.command!r}"
        self._command = check_exec(chosen, exec_, self._about)
        self._chosen = chosen
        self._clock, self._patience = clock, patience
        self._login: Login | None = None
        self._expires: float | None = None
        self._ran = float("-inf")
        self._refused = False
        self._one = asyncio.Lock()

    async def current(self) -> Login:
        async with self._one:
            if self._login is None or self._must_run():
                self._login = await self._run()
            return self._login

    def rejected(self) -> None:
        self._refused = True

    def _must_run(self) -> bool:
        now = self._clock()
        if self._refused:
            return abs(now - self._ran) >= REST
        return self._expires is not None and now >= self._expires - EARLY

    async def _run(self) -> Login:
        interactive = self._interactive()
        environment = {**os.environ, **{one.name: one.value for one in self._exec.env}}
        try:
            environment["KUBERNETES_EXEC_INFO"] = json.dumps(self._info(interactive))
        except Complaint as complaint:  # a CA file that is being replaced
            raise NoCredentials(complaint.sentence, hint=complaint.hint, code=complaint.code) from complaint
        answer = await self._call(environment, interactive)
        login, self._expires = self._read(answer)
        self._ran, self._refused = self._clock(), False
        return login

    async def _call(self, environment: dict[str, str], interactive: bool) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                self._command, *self._exec.args, env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
                start_new_session=not interactive,  # its own group, so that what it started ends with it
            )  # fmt: skip
        except OSError as error:
            hint = self._exec.install_hint.strip() or "Install it, or put it on PATH."
            raise _no(f"{self._about}: the command cannot be run: {error.strerror}", hint) from error
        patience = PATIENCE_WITH_PERSON if interactive else self._patience
        try:
            async with asyncio.timeout(patience):
                out, err = await _both(process)
        except TimeoutError as error:
            raise _no(f"{self._about}: no answer within {patience:g} s", "Run the command by hand to see.") from error
        finally:
            if process.returncode is None:
                _end(process, group=not interactive)
                await process.wait()
        if process.returncode != 0:
            said = err.decode(errors="replace").strip()[-300:] or "it said nothing"
            raise _no(f"{self._about}: it ended with code {process.returncode}: {said}", "Run it by hand to see.")
        return out

    def _read(self, answer: bytes) -> tuple[Login, float | None]:
        try:
            found = msgspec.json.decode(answer, type=ExecCredential)
        except msgspec.MsgspecError as error:
            raise _no(f"{self._about}: its answer is not an ExecCredential ({error})") from error
        if found.kind != "ExecCredential" or found.api_version != self._exec.api_version:
            raise _no(
                f"{self._about}: it answered {found.api_version or 'no apiVersion'} {found.kind or 'no kind'},"
                f" but {self._exec.api_version} ExecCredential was asked for",
                "Set apiVersion in the kubeconfig to what the command speaks.",
            )
        status = found.status
        if status is None or not (status.token or status.client_certificate_data):
            raise _no(f"{self._about}: its answer holds neither a token nor a certificate")
        if not status.token.isascii() or not status.token.isprintable():
            raise _no(f"{self._about}: its token holds characters no token has")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise _no(f"{self._about}: its answer holds only one of certificate and key")
        pair = None
        if status.client_certificate_data:
            pair = (status.client_certificate_data.encode(), status.client_key_data.encode())
        headers = {"Authorization": f"Bearer {status.token}"} if status.token else {}
        return Login(headers, pair), parse(status.expiration_timestamp)

    def _interactive(self) -> bool:
        """Whether it may prompt the user: only where there is a terminal."""
        person = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if self._exec.interactive_mode == "Always" and not person:
            raise _no(
                f"{self._about}: it wants to ask a person (interactiveMode: Always), but there is no terminal",
                "Use a kubeconfig made for machines, with a token or certificate.",
            )
        return person and self._exec.interactive_mode != "Never"

    def _info(self, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._exec.provide_cluster_info:
            spec["cluster"] = cluster_info(self._chosen)
        return {"kind": "ExecCredential", "apiVersion": self._exec.api_version, "spec": spec}


def cluster_info(chosen: Chosen) -> dict[str, Any]:
    """The cluster as the protocol wants it: a CA file is sent as its content."""
    cluster = chosen.cluster
    authority = chosen.material(
        "cluster.certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority
    )
    config = [one.extension for one in cluster.extensions if one.name == "client.authentication.k8s.io/exec"]
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority.read()).decode() if authority else "",
        "proxy-url": cluster.proxy_url,
        "config": config[0] if config else None,
    }
    return {name: value for name, value in info.items() if value}


def check_exec(chosen: Chosen, exec_: Exec, about: str) -> str:
    """The command to run, or a sentence why it may not or cannot be run."""
    folder = chosen.user_origin.folder
    if folder is None:
        raise wrong(
            f"{chosen.user_origin.label} asks to run the command {exec_.command!r}, which is not allowed there",
            "Whoever may write that Secret could run anything here. Use a token or a certificate.",
        )
    if not exec_.command:
        raise wrong(f"{about}: there is no command")
    if exec_.api_version not in VERSIONS:
        raise wrong(
            f"{about}: apiVersion {exec_.api_version!r} is not supported",
            f"Use {VERSIONS[0]}; most tools only need an update and a fresh kubeconfig.",
        )
    if exec_.interactive_mode not in ("", "Never", "IfAvailable", "Always"):
        raise wrong(f"{about}: interactiveMode {exec_.interactive_mode!r} is none of Never, IfAvailable, Always")
    has_folder = os.sep in exec_.command
    return str(folder / Path(exec_.command)) if has_folder else exec_.command


def _end(process: asyncio.subprocess.Process, *, group: bool) -> None:
    try:
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass  # it has just ended by itself


async def _both(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Its whole output, bounded: a command that never stops talking is cut off by closing its pipe."""
    out, err = await asyncio.gather(_some(process.stdout, LARGEST_ANSWER), _some(process.stderr, LARGEST_ANSWER))
    await process.wait()
    return out, err


async def _some(stream: asyncio.StreamReader | None, most: int) -> bytes:
    if stream is None:
        return b""
    found = bytearray()
    while chunk := await stream.read(65536):
        found += chunk[: most - len(found)]  # read on, so that the command does not hang; keep no more
    return bytes(found)


def _no(sentence: str, hint: str = "") -> NoCredentials:
    return NoCredentials(f"{sentence}.", hint=hint, code=Exit.SETTING)
