"""Last of all, over the whole run: the API server's audit log against the table of rights.

Every operator runs as a service account with the chart's rights and no other (`accounts.py`): none as somebody else,
nothing was refused to them, and a right that nobody used is in `hostler.ship.untried`, with its reason.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hostler.install.rights import Right
from hostler.install.roles import Account
from hostler.operator import AGENT
from hostler.sandbox import Sandbox
from hostler.ship.untried import phrases, reason
from tests.real.accounts import CHARTED, NOBODY, PERSON
from tests.real.auditing import forbidden, who
from tests.real.sandboxes import OURS, WAIT_SECONDS, asked_elsewhere
from tests.tools import not_here

ACCOUNT = re.compile(rf"system:serviceaccount:([^:]+):([^:]*{CHARTED}[^:]*)")
ON_PURPOSE = re.compile(rf"system:serviceaccount:[^:]+:{NOBODY}-[^:]+|{PERSON}")  # why: see there
TABLE = list(phrases())
pytestmark = pytest.mark.timeout(WAIT_SECONDS + 100)  # the first of these waits for the other workers


@dataclass(frozen=True)
class Asked:
    """What an operator asked of the API server, once however often."""

    account: str
    namespace: str  # the operator's own
    verb: str
    group: str
    plural: str
    place: str
    name: str
    forbidden: bool

    def needs(self, right: Right) -> bool:
        """Whether the right is about this. Some tests give the lease another name, which the chart then grants."""
        account = Account(self.namespace, lease=self.name if self.plural == "leases" else "")
        places, names = account.places(right), account.names(right)
        return (
            self.verb in right.verbs
            and (right.group, right.plural) == (self.group, self.plural)
            and not {"", self.place}.isdisjoint(places)
            and (not names or self.name in names)
        )


@dataclass(frozen=True)
class Log:
    asked: frozenset[Asked]
    operators: frozenset[str]  # who ran one


@pytest.fixture(scope="module")
def log(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Of the sandboxes of all workers."""
    operators: set[str] = set()
    entries = itertools.chain(sandbox.audit(OURS), asked_elsewhere(tmp_path_factory))
    found = Log(frozenset(_asked(entries, operators)), frozenset(operators))
    if not found.asked:
        not_here("no operator has run on this sandbox yet: this file is alone on a new one")
    return found


def _asked(entries: Iterable[dict[str, Any]], operators: set[str]) -> Iterator[Asked]:
    for entry in entries:
        user, about = who(entry), entry.get("objectRef", {})
        if user and entry.get("userAgent") == AGENT:  # without a name: a login that was refused
            operators.add(user)
        if (account := ACCOUNT.fullmatch(user)) and about.get("resource") not in (None, "selfsubjectreviews"):
            yield _one(account, entry, about)


def _one(account: re.Match[str], entry: dict[str, Any], about: dict[str, Any]) -> Asked:
    part = f"/{about['subresource']}" if "subresource" in about else ""
    # What is made has any name: an Event's is new each time.
    name = "" if entry["verb"] == "create" else about.get("name", "")
    return Asked(
        account[0], account[1], entry["verb"], about.get("apiGroup", ""), about["resource"] + part,
        about.get("namespace", ""), name, forbidden(entry),
    )  # fmt: skip


def refused(asked: Collection[Asked]) -> list[Asked]:
    """What was never allowed. An API server that was just started may not know of a role yet, and says no once."""
    return [one for one in asked if one.forbidden and replace(one, forbidden=False) not in asked]


def test_no_operator_runs_as_anybody_but_an_account_with_the_chart_s_rights(log: Log) -> None:
    others = [one for one in log.operators if not ACCOUNT.fullmatch(one) and not ON_PURPOSE.fullmatch(one)]
    assert others == [], "start it by tests.real.operating, or say in tests.real.accounts why not"
    assert log.operators, "they are known by the name of their agent"


def test_nothing_is_refused_to_an_operator_with_the_chart_s_rights(log: Log) -> None:
    assert refused(log.asked) == []


def test_a_right_nobody_used_has_its_reason(log: Log, request: pytest.FixtureRequest) -> None:
    if not _whole(request) or request.session.testsfailed:
        pytest.skip("only where every other test was run, and passed")
    assert unjustified(log.asked) == [], "not needed, or not tried"


def _whole(request: pytest.FixtureRequest) -> bool:
    """Whether this run has every file with real tests in it, as `make test` and `make test-full` do."""
    option = request.config.getoption
    if option("keyword") or option("deselect") or option("markexpr") not in ("", "not full"):
        return False
    if os.environ.get("PYTEST_XDIST_WORKER_COUNT") in ("1", "2"):  # a share that is begun after this is missing
        return False
    return set(Path(__file__).parent.rglob("test_*.py")) <= {item.path for item in request.session.items}


def unjustified(asked: Collection[Asked]) -> list[str]:
    had = [one for one in asked if not one.forbidden]
    return [
        name
        for name, right, verb in TABLE
        if not reason(name, right, verb) and not any(one.verb == verb and one.needs(right) for one in had)
    ]


# -- that those above can fail


PATCHED = Asked("a", "n", "patch", "", "nodes", "", "node-1", forbidden=False)


def test_a_right_is_missed_when_nobody_uses_it() -> None:
    missed = unjustified([])
    assert "patch nodes" in missed
    assert "list nodes" not in missed, "older API servers are listed"
    assert set(missed) - set(unjustified([PATCHED])) == {"patch nodes"}


def test_a_refusal_counts_unless_the_same_was_allowed_to_the_same_account() -> None:
    denied = replace(PATCHED, forbidden=True)
    assert refused([denied]) == refused([denied, replace(PATCHED, account="b")]) == [denied]
    assert refused([denied, PATCHED]) == []
