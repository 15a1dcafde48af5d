"""Last of all, over the whole run: nothing that any operator wrote is missing from the table of rights.

The tests run operators with all rights, each under a name that ends with its namespace; the API server's audit log says
what they wrote with them. What they only read is shown by test_chart_install, whose operator has the chart's rights.
"""

from __future__ import annotations

import json
import re

import pytest

from hostler.fleet.capabilities import CAPABILITIES
from hostler.fleet.rights import rights_for
from hostler.fleet.roles import Account
from hostler.sandbox import Sandbox

OPERATOR = re.compile(r"[a-z0-9-]+-((?:t|op)-[0-9a-f]{8})")
# Without what OpenShift's admission alone wants in the whole cluster: it is to be had there, and used nowhere.
EVERY = [
    right
    for right in rights_for([one.name for one in CAPABILITIES if one.built])
    if right.namespace or not right.openshift
]


def granted(account: Account, verb: str, about: dict[str, str]) -> bool:
    plural = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
    for right in EVERY:
        place, names = account.place(right), account.names(right)
        if (
            verb in right.verbs
            and (right.group, right.plural) == (about.get("apiGroup", ""), plural)
            and place in ("", about.get("namespace", ""))
            and (not names or about.get("name", "") in names)
        ):
            return True
    return False


def test_every_write_of_every_operator_is_in_the_table(sandbox: Sandbox) -> None:
    seen, missing = 0, set()
    with sandbox.layout.audit_log.open() as lines:
        for line in lines:
            if '"impersonatedUser"' not in line or '"hostler/' not in line or not line.endswith("\n"):
                continue
            entry = json.loads(line)
            match = OPERATOR.fullmatch(entry["impersonatedUser"]["username"])
            about = entry.get("objectRef", {})
            if match is None or entry["responseStatus"]["code"] >= 400 or about.get("resource") == "selfsubjectreviews":
                continue
            seen += 1
            # Some tests give the lease another name, which the chart then grants instead.
            lease = about.get("name", "") if about["resource"] == "leases" else ""
            if not granted(Account(match[1], lease=lease), entry["verb"], about):
                missing.add((entry["verb"], about.get("apiGroup", ""), about["resource"], about.get("subresource", "")))
    assert missing == set(), "the chart's operator would be refused this"
    if seen == 0:
        # Only where this file runs alone on a new sandbox.
        pytest.skip("no operator has run on this sandbox yet")
