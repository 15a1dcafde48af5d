"""Rights that are granted although no test of ours uses them where it could be seen, each with the reason.

tests/real/test_zz_rights.py reads in the API server's audit log what every operator of the whole run asked for. A right
that was never used and is not in this table fails it: it is either not needed, or not tried. docs/rights.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hostler.fleet.capabilities import CAPABILITIES
from hostler.fleet.rights import LEASE_NAME, OWN, Right, rights_for

UNTRIED: dict[str, str] = {}


def phrase(right: Right, verb: str) -> str:
    """`patch configmaps in its own namespace, only hostler-join`: one verb of one right, without its reason."""
    where = {"": "", OWN: " in its own namespace"}.get(right.namespace, f" in {right.namespace}")
    names = ", ".join("its lease" if name == LEASE_NAME else name for name in right.names)
    return f"{verb} {right.resource}{where}" + (f", only {names}" if names else "")


def phrases() -> Iterator[tuple[str, Right, str]]:
    """Every verb of every right that the chart grants with everything on, OpenShift included."""
    for right in rights_for([one.name for one in CAPABILITIES if one.built]):
        for verb in right.verbs:
            yield phrase(right, verb), right, verb
