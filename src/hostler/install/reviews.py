"""Asks the API server whether an account has the rights of our table, one SubjectAccessReview per right and verb."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from hostler.install.rights import OPENSHIFT, Right
from hostler.install.roles import Account
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import ACCESS_REVIEW, NAMESPACE
from hostler.kube.records import Object, Record

AT_ONCE = 8


class _Verdict(Record, frozen=True):
    allowed: bool = False


class _Review(Record, frozen=True):
    status: _Verdict = _Verdict()


async def missing_rights(client: Client, account: Account, rights: Iterable[Right]) -> tuple[str, ...]:
    """What the account may not do and should, as `verb resource (where)`; raises what the API server says."""
    turns = asyncio.Semaphore(AT_ONCE)
    places = {right.namespace or OPENSHIFT for right in rights if right.openshift}
    absent = {place for place in places if await _gone(client, place)}

    async def lacks(right: Right, place: str, verb: str, name: str) -> str:
        async with turns:
            review = await client.create(ACCESS_REVIEW, _question(right, place, verb, name, account), type=_Review)
        where = (f" {name}" if name else "") + (f" in {place}" if place else "")
        return "" if review.status.allowed else f"{verb} {right.resource}{where}"

    asked = [
        lacks(right, place, verb, name)
        for right in rights
        if not right.openshift or (right.namespace or OPENSHIFT) not in absent
        for place in account.places(right)
        for verb in right.verbs
        for name in account.names(right) or ("",)
    ]
    return tuple(dict.fromkeys(missing for missing in await asyncio.gather(*asked) if missing))


async def _gone(client: Client, namespace: str) -> bool:
    try:
        await client.get(NAMESPACE, namespace, type=Object)
    except NotFound:
        return True
    return False


def _question(right: Right, place: str, verb: str, name: str, account: Account) -> dict[str, object]:
    plural, _, part = right.plural.partition("/")
    return {
        "spec": {
            "user": account.user,
            "groups": list(account.groups),
            "resourceAttributes": {
                "namespace": place, "verb": verb, "group": right.group, "resource": plural,
                "subresource": part, "name": name,
            },
        }
    }  # fmt: skip
