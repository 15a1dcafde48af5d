"""The MutatingAdmissionPolicy that puts the rule into every write of a scoped DaemonSet: nothing is fought over. Pure.

The patch is a JSON patch made by CEL, because the terms are an atomic list: it adds the expression to each term that
has something in it and lacks the expression, or the whole affinity where there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.fleet.model import ScopedDaemonSet
from hostler.platform.scope import REQUIRED, words

PREFIX = "hostler-platform-"
LABELS = {"app.kubernetes.io/managed-by": "hostler", "hostler.dev/capability": "platform"}
# CEL has no index in a comprehension of every version; a DaemonSet with more terms than this is named as such.
MOST_TERMS = 32

_SPEC = "/spec/template/spec"
_POD = "object.spec.template.spec"
_TERMS = f"{_POD}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The policy and its binding; both have one name."""

    name: str
    policy: Mapping[str, Any]
    binding: Mapping[str, Any]


def manifests(targets: Iterable[ScopedDaemonSet]) -> list[Manifest]:
    """One policy per rule, for all the DaemonSets that share it."""
    by_rule: dict[tuple[str, str, tuple[str, ...]], list[ScopedDaemonSet]] = {}
    for one in targets:
        by_rule.setdefault((one.key, one.operator, one.values), []).append(one)
    return sorted((_manifest(those) for those in by_rule.values()), key=lambda one: one.name)


def _manifest(those: Sequence[ScopedDaemonSet]) -> Manifest:
    digest = hashlib.sha256(words(those[0]).encode()).hexdigest()[:10]
    name = f"{PREFIX}{digest}"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["daemonsets"],
                }
            ]
        },
        "matchConditions": [{"name": "scoped", "expression": _is_one_of(those)}],
        # A DaemonSet that could not be mutated is still taken; server-side apply mends it, and nobody is locked out.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch_expression(those[0])}}],
    }
    return Manifest(name, spec, {"policyName": name})


def _is_one_of(those: Sequence[ScopedDaemonSet]) -> str:
    either = (
        f"(object.metadata.namespace == {_text(one.namespace)} && object.metadata.name == {_text(one.name)})"
        for one in those
    )
    return "has(object.metadata.name) && (" + " || ".join(either) + ")"


def patch_expression(target: ScopedDaemonSet) -> str:
    """CEL that makes the patches for one DaemonSet."""
    rule = _expression(target)
    terms = f'{{"nodeSelectorTerms": [{{"matchExpressions": [{rule}]}}]}}'
    numbers = ", ".join(str(number) for number in range(MOST_TERMS))
    lacking = f"[{numbers}].filter(i, i < size({_TERMS}) && {_lacks(target)})"
    at = f'"{_SPEC}/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/" + string(i)'
    added = (
        f"{lacking}.map(i, has({_TERMS}[i].matchExpressions) && size({_TERMS}[i].matchExpressions) > 0 ? "
        f'JSONPatch{{op: "add", path: {at} + "/matchExpressions/-", value: {rule}}} : '
        f'JSONPatch{{op: "add", path: {at} + "/matchExpressions", value: [{rule}]}})'
    )
    return (
        f"!has({_POD}.affinity) ? "
        f'[JSONPatch{{op: "add", path: "{_SPEC}/affinity", value: {{"nodeAffinity": {{"{REQUIRED}": {terms}}}}}}}] : '
        f"!has({_POD}.affinity.nodeAffinity) ? "
        f'[JSONPatch{{op: "add", path: "{_SPEC}/affinity/nodeAffinity", value: {{"{REQUIRED}": {terms}}}}}] : '
        f"!has({_POD}.affinity.nodeAffinity.{REQUIRED}) ? "
        f'[JSONPatch{{op: "add", path: "{_SPEC}/affinity/nodeAffinity/{REQUIRED}", value: {terms}}}] : '
        f"{added}"
    )


def _lacks(target: ScopedDaemonSet) -> str:
    """The i-th term can match something and has no such expression."""
    term = f"{_TERMS}[i]"
    some = f"(has({term}.matchExpressions) && size({term}.matchExpressions) > 0)"
    fields = f"(has({term}.matchFields) && size({term}.matchFields) > 0)"
    same = f"e.key == {_text(target.key)} && e.operator == {_text(target.operator)}"
    if target.values:
        wanted = ", ".join(_text(one) for one in target.values)
        same += f" && has(e.values) && size(e.values) == {len(target.values)} && e.values.all(v, v in [{wanted}])"
    return f"({some} || {fields}) && !({some} && {term}.matchExpressions.exists(e, {same}))"


def _expression(target: ScopedDaemonSet) -> str:
    said = f'"key": dyn({_text(target.key)}), "operator": dyn({_text(target.operator)})'
    if target.values:
        said += f', "values": dyn([{", ".join(_text(one) for one in target.values)}])'
    return f"{{{said}}}"


def _text(text: str) -> str:
    """A CEL string; whatever is in it is text and never part of the expression."""
    return json.dumps(text)


def as_wanted(current: Any, wanted: Any) -> bool:
    """Whether what is there says all that is wanted; what the API server added to it does not count."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(as_wanted(current.get(key), one) for key, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(current, list | tuple)
            and len(current) == len(wanted)
            and all(as_wanted(one, other) for one, other in zip(current, wanted, strict=True))
        )
    return bool(current == wanted)
