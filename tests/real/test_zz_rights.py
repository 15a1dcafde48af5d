"""Last of all, over the whole run: the API server's audit log against the table of rights.

Most tests run operators with all rights, each under a name that ends with its namespace: what they wrote must be in the
table. Others run them as a service account with the chart's rights and no other: nothing was refused to them, and what
they read is in the log too. A right that nobody used is in `hostler.ship.untried`, with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hostler.fleet.rights import Right
from hostler.fleet.roles import Account
from hostler.sandbox import Sandbox
from hostler.ship.untried import phrases, reason
from tests.real.auditing import READS, forbidden, who

NAMED = re.compile(r"[a-z0-9-]+-([a-z]+-[0-9a-f]{8})")  # with every right: tests.real.operating
ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]*hostler[^:]*)")  # with those of the chart
TABLE = list(phrases())


@dataclass(frozen=True)
class Asked:
    """What an operator asked of the API server, once however often."""

    namespace: str  # the operator's own
    with_all_rights: bool
    verb: str
    group: str
    plural: str
    place: str
    name: str
    forbidden: bool
    failed: bool

    def needs(self, right: Right) -> bool:
        """Whether the right is about this. Some tests give the lease another name, which the chart then grants."""
        account = Account(self.namespace, lease=self.name if self.plural == "leases" else "")
        place, names = account.place(right), account.names(right)
        return (
            self.verb in right.verbs
            and (right.group, right.plural) == (self.group, self.plural)
            and place in ("", self.place)
            and (not names or self.name in names)
        )


@pytest.fixture(scope="module")
def asked(sandbox: Sandbox) -> frozenset[Asked]:
    found = frozenset(_asked(sandbox))
    if not found:
        # Only where this file runs alone on a new sandbox.
        pytest.skip("no operator has run on this sandbox yet")
    return found


def _asked(sandbox: Sandbox) -> Iterator[Asked]:
    with sandbox.layout.audit_log.open() as lines:
        for line in lines:
            if '"hostler/' not in line or not line.endswith("\n"):
                continue
            entry = json.loads(line)
            about = entry.get("objectRef", {})
            named, account = NAMED.fullmatch(who(entry)), ACCOUNT.fullmatch(who(entry))
            found = named or account
            if found is None or about.get("resource") in (None, "selfsubjectreviews"):
                continue
            part = f"/{about['subresource']}" if "subresource" in about else ""
            yield Asked(
                found[1], named is not None, entry["verb"], about.get("apiGroup", ""), about["resource"] + part,
                about.get("namespace", ""), about.get("name", ""), forbidden(entry),
                entry["responseStatus"]["code"] >= 400,
            )  # fmt: skip


def test_every_write_of_every_operator_is_in_the_table(asked: frozenset[Asked]) -> None:
    # Without what OpenShift's admission alone wants in the whole cluster: it is to be had there, and used nowhere.
    rights = {right for _, right, _ in TABLE if right.namespace or not right.openshift}
    missing = {
        (one.verb, one.group, one.plural)
        for one in asked
        if one.with_all_rights and not one.failed and one.verb not in READS
        if not any(one.needs(right) for right in rights)
    }
    assert missing == set(), "the chart's operator would be refused this"


def test_nothing_is_refused_to_an_operator_with_the_chart_s_rights(asked: frozenset[Asked]) -> None:
    assert [one for one in asked if one.forbidden and not one.with_all_rights] == []


@pytest.mark.full
def test_a_right_nobody_used_has_its_reason(asked: frozenset[Asked], request: pytest.FixtureRequest) -> None:
    config = request.config
    chosen = config.getoption("keyword") or config.getoption("markexpr")
    whole = config.args_source is config.ArgsSource.TESTPATHS and not chosen
    if not whole or config.getoption("deselect") or request.session.testsfailed:
        pytest.skip("only where every other test was run, and passed")
    assert unjustified(asked) == [], "not needed, or not tried"


def unjustified(asked: frozenset[Asked]) -> list[str]:
    had = [one for one in asked if not one.forbidden]
    return [
        name
        for name, right, verb in TABLE
        if not reason(name, right, verb) and not any(one.verb == verb and one.needs(right) for one in had)
    ]


def test_a_right_is_missed_when_nobody_uses_it() -> None:
    """That the test above can fail."""
    missed = unjustified(frozenset())
    assert "patch nodes" in missed
    assert "list nodes" not in missed, "older API servers are listed"
    used = Asked("n", True, "patch", "", "nodes", "", "node-1", forbidden=False, failed=False)
    assert set(missed) - set(unjustified(frozenset([used]))) == {"patch nodes"}
