"""Who asks for a certificate, and whether that user may. Part of `decide`. Pure.

The API server writes a request's user and groups; the client cannot choose them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hostler.host.conditions import names
from hostler.join.model import SERVING, Outcome, Policy, RequestSpec, Rule, RuleName
from hostler.join.rules import fails, holds
from hostler.join.shape import GROUP, PREFIX

AUTHENTICATED = "system:authenticated"
ACCOUNT, TOKEN_USER, TOKEN_GROUP = "system:serviceaccount:", "system:bootstrap:", "system:bootstrappers"
_TOKEN = re.compile(rf"{TOKEN_USER}[a-z0-9]{{6}}")


def requester_rule(spec: RequestSpec, node: str, policy: Policy) -> Rule:
    """A serving certificate is asked for by the node itself, a client certificate by a bootstrapper."""
    if spec.signer_name == SERVING:
        return _itself(spec, f"{PREFIX}{node}", policy)
    return _bootstrapper(spec, policy)


def counts_for_flood(spec: RequestSpec, policy: Policy) -> bool:
    """Whether a pending request could be a node's. Others cannot keep nodes out by making many."""
    node = spec.username.removeprefix(PREFIX) if spec.username.startswith(PREFIX) else ""
    return requester_rule(spec, node, policy).outcome is Outcome.HOLDS


def _itself(spec: RequestSpec, node: str, policy: Policy) -> Rule:
    if not policy.serving:
        return fails(RuleName.REQUESTER, "serving certificates are not approved here (HOSTLER_JOIN_SERVING)")
    if spec.username != node or sorted(spec.groups) != sorted((GROUP, AUTHENTICATED)):
        return fails(
            RuleName.REQUESTER, f"{spec.username} asks for a serving certificate of {node}; only that node itself may"
        )
    return holds(RuleName.REQUESTER, f"{spec.username} asks for itself")


def _bootstrapper(spec: RequestSpec, policy: Policy) -> Rule:
    user, groups = spec.username, sorted(spec.groups)
    if user.startswith(PREFIX):
        return fails(RuleName.REQUESTER, f"{user} renews its client certificate, which the cluster's own approver does")
    for one in policy.bootstrappers:
        if one.startswith(ACCOUNT) and user == one:
            space = one.removeprefix(ACCOUNT).partition(":")[0]
            wanted = sorted(("system:serviceaccounts", f"system:serviceaccounts:{space}", AUTHENTICATED))
            if groups == wanted:
                return holds(RuleName.REQUESTER, f"{user} is a bootstrapper")
            return fails(
                RuleName.REQUESTER, f"{user} comes with other groups than a service account has: {names(groups)}"
            )
        if one.startswith(TOKEN_GROUP) and _by_token(user, groups, one):
            return holds(RuleName.REQUESTER, f"{user} has a bootstrap token of the group {one}")
    return fails(RuleName.REQUESTER, f"{user or 'nobody'} is no bootstrapper that is configured here")


def _by_token(user: str, groups: Sequence[str], wanted: str) -> bool:
    """A bootstrap token gives `system:bootstrap:ID` and groups below system:bootstrappers, and nothing else can."""
    known = {AUTHENTICATED, TOKEN_GROUP}
    return (
        _TOKEN.fullmatch(user) is not None
        and len(set(groups)) == len(groups)
        and known <= set(groups)
        and wanted in groups
        and all(one in known or one.startswith(f"{TOKEN_GROUP}:") for one in groups)
    )
