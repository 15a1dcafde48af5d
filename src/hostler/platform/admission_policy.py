"""The MutatingAdmissionPolicy that puts the rule into every write of a scoped DaemonSet: nothing is fought over. Pure.

The patch is a JSON patch made by CEL, because the terms are an atomic list: it adds the expression to each term that
has something in it and lacks the expression, or the whole affinity where there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.fleet import ScopedDaemonSet
from hostler.host.conditions import names
from hostler.host.scheduling import REQUIRED
from hostler.host.writes import Verb
from hostler.platform.model import BINDING, MOST_TERMS, POLICY, PolicySpec, Scope, State, Write
from hostler.platform.scoping import describe_rule, find_flaw, key_of_target

PREFIX = "hostler-platform-"
LABELS = {"app.kubernetes.io/managed-by": "hostler", "hostler.dev/capability": "platform"}

_SPEC = "/spec/template/spec"
_POD = "object.spec.template.spec"
_TERMS = f"{_POD}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The policy and its binding, for one rule; both have one name."""

    name: str
    rule: str
    policy: Mapping[str, Any]
    binding: Mapping[str, Any]


def manifests(entries: Sequence[ScopedDaemonSet], held: Collection[str] = ()) -> list[Manifest]:
    """One policy per rule, for all the DaemonSets that share it; none is about one that is held back (by its key).

    Nor is there one for a rule that Kubernetes would not take: every write would be refused with it.
    """
    by_rule: dict[str, tuple[ScopedDaemonSet, list[str]]] = {}
    for number, entry in enumerate(entries):
        if key_of_target(entry) not in held and not find_flaw(entry):
            earlier = [other for other in entries[:number] if describe_rule(other) != describe_rule(entry)]
            _, conditions = by_rule.setdefault(describe_rule(entry), (entry, []))
            conditions.append(_about(entry, earlier, held))
    return sorted((_manifest(*those) for those in by_rule.values()), key=lambda manifest: manifest.name)


def _manifest(target: ScopedDaemonSet, conditions: Sequence[str]) -> Manifest:
    digest = hashlib.sha256(describe_rule(target).encode()).hexdigest()[:10]
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
        "matchConditions": [{"name": "scoped", "expression": " || ".join(conditions)}],
        # A write that cannot be mutated is still accepted, so no owner is locked out; server-side apply adds the rule.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch_expression(target)}}],
    }
    return Manifest(name, describe_rule(target), spec, {"policyName": name})


def _about(entry: ScopedDaemonSet, earlier: Sequence[ScopedDaemonSet], held: Collection[str]) -> str:
    """CEL that is true for what an entry chooses, unless an earlier one with another rule does, or it is held back."""
    cel = _chooses(entry)
    if entry.labels:
        cel += "".join(f" && !{_is(*key.split('/', 1))}" for key in sorted(held))
    return f"({cel}" + "".join(f" && !({_chooses(other)})" for other in earlier) + ")"


def _chooses(entry: ScopedDaemonSet) -> str:
    if not entry.labels:
        return _is(entry.namespace, entry.name)
    here = [f"object.metadata.namespace == {_text(entry.namespace)}"] if entry.namespace else []
    each = (
        f"{_text(key)} in object.metadata.labels && object.metadata.labels[{_text(key)}] == {_text(value)}"
        for key, value in sorted(entry.labels.items())
    )
    return " && ".join((*here, "has(object.metadata.labels)", *each))


def _is(namespace: str, name: str) -> str:
    at = f"object.metadata.namespace == {_text(namespace)} && object.metadata.name == {_text(name)}"
    return f"(has(object.metadata.name) && {at})"


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
        wanted = ", ".join(_text(value) for value in target.values)
        same += f" && has(e.values) && size(e.values) == {len(target.values)} && e.values.all(v, v in [{wanted}])"
    return f"({some} || {fields}) && !({some} && {term}.matchExpressions.exists(e, {same}))"


def _expression(target: ScopedDaemonSet) -> str:
    cel = f'"key": dyn({_text(target.key)}), "operator": dyn({_text(target.operator)})'
    if target.values:
        cel += f', "values": dyn([{", ".join(_text(value) for value in target.values)}])'
    return f"{{{cel}}}"


def _text(text: str) -> str:
    """A CEL string; whatever is in it is text and never part of the expression."""
    return json.dumps(text)


def as_wanted(current: Any, wanted: Any) -> bool:
    """Whether what is there says all that is wanted; what the API server added to it does not count."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(as_wanted(current.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(current, list | tuple)
            and len(current) == len(wanted)
            and all(as_wanted(item, other) for item, other in zip(current, wanted, strict=True))
        )
    return bool(current == wanted)


# -- what is written


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The policies and bindings of the cluster; both are empty where the API server does not serve them."""

    policies: Sequence[PolicySpec] = ()
    bindings: Sequence[PolicySpec] = ()
    served: bool = True


def rules_wanted(entries: Sequence[ScopedDaemonSet], scopes: Sequence[Scope]) -> list[Manifest]:
    """The policies that there should be: none covers a DaemonSet whose rule is held back."""
    return manifests(entries, {key_of_target(scope.target) for scope in scopes if scope.state is State.HELD_BACK})


def policy_writes(entries: Sequence[ScopedDaemonSet], scopes: Sequence[Scope], facts: PolicyFacts) -> tuple[Write, ...]:
    """What differs; a second time it is nothing.

    A policy comes before its binding, and goes after it: a binding without its policy would be an error.
    """
    if not facts.served:
        return ()
    wanted = rules_wanted(entries, scopes)
    why = f"every write of {names(map(key_of_target, entries))} gets its rule"
    writes = []
    for manifest in wanted:
        for kind, found, spec in (
            (POLICY, facts.policies, manifest.policy),
            (BINDING, facts.bindings, manifest.binding),
        ):
            there = next((other for other in found if other.metadata.name == manifest.name), None)
            if there is None or not (as_wanted(there.spec, spec) and as_wanted(there.metadata.labels, LABELS)):
                body = {"metadata": {"name": manifest.name, "labels": dict(LABELS)}, "spec": spec}
                about = tuple(
                    key_of_target(scope.target)
                    for scope in scopes
                    if describe_rule(scope.target) == manifest.rule and scope.state is not State.HELD_BACK
                )
                writes.append(Write(Verb.APPLY, kind, manifest.name, why, body=body, about=about))
    known = {manifest.name for manifest in wanted}
    for kind, found in ((BINDING, facts.bindings), (POLICY, facts.policies)):
        for meta in (item.metadata for item in found):
            ours = meta.name.startswith(PREFIX) and LABELS.items() <= meta.labels.items()
            if ours and meta.name not in known and not meta.deletion_timestamp:
                no_need = "no DaemonSet needs this rule any more"
                writes.append(Write(Verb.DELETE, kind, meta.name, no_need, uid=meta.uid))
    return tuple(writes)
