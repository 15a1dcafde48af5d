"""Asks the API server by what name it knows us (SelfSubjectReview)."""

from __future__ import annotations

from hostler.kube.client import Client
from hostler.kube.errors import Forbidden, NotFound
from hostler.kube.kinds import SELF_REVIEW
from hostler.kube.records import Record

SOMEBODY = "somebody"  # a name for people to read


async def user_name(client: Client) -> str:
    """The name by which the API server knows this user; it is the same on every machine.

    Empty where an old server or a strict role does not say. Any other error is raised.
    """
    try:
        answer = await client.create(SELF_REVIEW, {}, type=_Review)
    except (NotFound, Forbidden):
        return ""
    return answer.status.user_info.username


async def who_am_i(client: Client) -> str:
    """As `user_name`, with a word for a user without a name. A hold is placed, and released, by this name."""
    return await user_name(client) or SOMEBODY


class _User(Record, frozen=True):
    username: str = ""


class _ReviewStatus(Record, frozen=True):
    user_info: _User = _User()


class _Review(Record, frozen=True):
    status: _ReviewStatus = _ReviewStatus()
