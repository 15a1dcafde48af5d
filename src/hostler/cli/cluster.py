"""From settings to a cluster or a running operator, and from their refusals to sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from hostler import log
from hostler.errors import Complaint, Exit
from hostler.explain import client as remote
from hostler.kube.client import Client
from hostler.kube.config import check, load
from hostler.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable, WriteRefused
from hostler.settings.foundation import CONTEXT, KUBECONFIG, LEASE_NAME, NAMESPACE, OPERATOR, SERVICE, kubeconfig_path
from hostler.settings.model import Settings

T = TypeVar("T")


def ask_cluster(settings: Settings, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run `work` with a client of the chosen cluster; what goes wrong there is a Complaint."""
    log.set_up("console", "warning")  # what the packages log on the way is for operators; people get sentences
    try:
        return asyncio.run(_ask(settings, work))
    except (Unreachable, WriteRefused, ApiError) as error:
        raise complaint_of(error) from error


def complaint_of(error: Complaint | Unreachable | WriteRefused | ApiError) -> Complaint:
    """The complaint to show for an error of the API server, or for a write that was not sent."""
    if isinstance(error, Complaint):
        return error
    if isinstance(error, WriteRefused):
        return Complaint(error.why, code=Exit.REFUSED)
    if isinstance(error, ApiError):
        sentence = f"The API server refused: {str(error).strip().rstrip('.')}."
        return Complaint(sentence, hint=_hint(error), code=Exit.REFUSED)
    hint = "Check --kubeconfig and --context, and that the API server is up."
    return Complaint(_sentence(error), hint=hint, code=Exit.UNREACHABLE)


async def _ask(settings: Settings, work: Callable[[Client], Awaitable[T]]) -> T:
    async with Client(load(kubeconfig_path(settings), settings[CONTEXT])) as client:
        try:
            return await work(client)
        except (Unreachable, Unauthorized, msgspec.MsgspecError) as error:
            await check(client)  # says more exactly what is wrong: name, certificate, token, or no API server at all
            if isinstance(error, msgspec.MsgspecError):
                sentence = f"An answer of the API server at {client.connection.server} cannot be read: {error}."
                raise Complaint(sentence, hint="Is Hostler older than this cluster?", code=Exit.FAILED) from error
            raise


def ask_operator(settings: Settings, path: str, type: type[T]) -> T:
    """Ask the running operator: at --operator URL, or the one that leads, through the API server."""
    if settings[OPERATOR]:  # then no cluster is needed
        refuse_two_targets(settings)
        try:
            return asyncio.run(remote.ask_url(settings[OPERATOR], path, type))
        except remote.TokenWanted:
            pass  # not over loopback: the cluster of the kubeconfig makes one
    return ask_cluster(settings, lambda client: ask_operator_by(client, settings, path, type))


async def ask_operator_by(client: Client, settings: Settings, path: str, type: type[T]) -> T:
    """The same, for who talks with the cluster already."""
    if settings[OPERATOR]:
        if settings.source(OPERATOR) != f"flag {OPERATOR.flag}":  # a user who types both means both
            refuse_two_targets(settings)
        return await _ask_named_url(client, settings, path, type)
    named = settings[SERVICE] if settings.given(SERVICE) else ""
    return await remote.ask_leader(client, remote.Place(settings[NAMESPACE], settings[LEASE_NAME], named), path, type)


async def _ask_named_url(client: Client, settings: Settings, path: str, type: type[T]) -> T:
    """At the URL that the user named. It gets a token of the reader if it asks for one, and never the user's own."""
    try:
        return await remote.ask_url(settings[OPERATOR], path, type)
    except remote.TokenWanted:
        token = await remote.request_token(client, settings[NAMESPACE])
        return await remote.ask_url(settings[OPERATOR], path, type, token=token)


def refuse_two_targets(settings: Settings) -> None:
    """An operator's URL and a cluster that was chosen for this very command may be of two different clusters."""
    chosen = [one for one in (CONTEXT, KUBECONFIG) if settings.source(one) == f"flag {one.flag}"]
    if chosen:
        raise Complaint(
            f"{chosen[0].flag} and {OPERATOR.name} ({settings.source(OPERATOR)}) name two targets.",
            hint=f"Leave one out; the operator's URL is {settings[OPERATOR]}.",
            code=Exit.USAGE,
        )


def _hint(error: ApiError) -> str:
    if isinstance(error, Unauthorized):
        return "The credentials of the kubeconfig are wrong or have expired; log in again."
    if isinstance(error, Forbidden):
        return (
            "Ask whoever runs the cluster for that right, or use another --context. ClusterRoles with such rights are "
            "hostler-viewer, hostler-operator and hostler-admin (docs/rights.md)."
        )
    if isinstance(error, NotFound):
        return "Check the name and the --context."
    return ""


def _sentence(error: Exception) -> str:
    text = str(error).strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
