"""What of the Helm chart is made from our own tables: its objects, rights, the CRD and the schema of the values.

`make chart` writes it, and a test compares it with what is in the repository. Templates written by hand only lay out
what stands here, so that chart, docs, `hostler manifests` and `hostler doctor` cannot say different things.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hostler.capabilities import CAPABILITIES
from hostler.install.admission import BINDING_SPEC, POLICIES
from hostler.install.config_map import IN_CONFIG_MAP
from hostler.install.crd import definitions
from hostler.install.grants import rights_of
from hostler.install.manifests import PROBES
from hostler.install.people import PEOPLE, rights_of_role
from hostler.install.rights import Right
from hostler.metal.kinds.webhook_objects import webhook_configurations
from hostler.settings import foundation
from hostler.settings.model import AnySetting
from hostler.ship import alerts, artifact_hub, command_schemas, diagrams, document, issue_forms, packages, settings_page
from hostler.ship.dashboard import dashboard

Json = dict[str, Any]


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Every generated file below the root of the repository, with what it should hold."""
    yield root / "chart/files/rights.yaml", rights_file()
    yield root / "chart/files/people.yaml", people_file()
    yield root / "chart/files/admission.yaml", admission_file()
    yield root / "chart/files/webhooks.yaml", webhooks_file()
    yield root / "chart/files/probes.yaml", _dump("src/hostler/install/manifests.py", PROBES)
    for kind, made in definitions().items():
        yield root / f"chart/files/{kind.kind.lower()}-crd.yaml", crd_file(made)
    about = root / "chart/Chart.yaml"
    yield about, artifact_hub.annotated_chart(about.read_text(encoding="utf-8"))
    yield root / "chart/README.md", artifact_hub.readme(root / "chart")
    for name, text in issue_forms.list_forms():
        yield root / ".github/ISSUE_TEMPLATE" / name, text
    yield root / "chart/values.schema.json", json.dumps(schema(), indent=2) + "\n"
    yield root / "chart/files/dashboard.json", json.dumps(dashboard(), indent=1) + "\n"
    for path, text in command_schemas.files():
        yield root / path, text
    yield root / "docs/rights.md", document.rights()
    yield root / "docs/settings.md", settings_page.markdown()
    architecture = root / "docs/architecture.md"
    yield architecture, packages.placed(architecture.read_text(encoding="utf-8"))
    rules = alerts.read(root / "chart/alerts")
    yield root / "docs/alerts.md", document.runbook(rules)
    history = root / "docs/history.md"
    yield history, document.ended(history.read_text(encoding="utf-8"), "history", rules["history"])
    for path, text in diagrams.files(root):
        yield path, document.ended(text, path.stem, rules[path.stem]) if path.stem in rules else text


def rights_file() -> str:
    parts = [
        {"name": capability.name, "rights": [_entry(right) for right in rights_of(capability)]}
        for capability in CAPABILITIES
    ]
    return _dump("src/hostler/install/rights.py and src/hostler/*/rbac.py", {"capabilities": parts})


def people_file() -> str:
    parts: list[Json] = [
        {
            "name": role.name,
            "why": role.equals.partition(". ")[0] + ".",
            "aggregated": role.aggregated,
            "rights": [_entry(right) for right in rights_of_role(role)],
        }
        for role in PEOPLE
    ]
    return _dump("src/hostler/install/people.py", {"roles": parts})


def admission_file() -> str:
    policies = [{"name": policy.name, "spec": policy.spec} for policy in POLICIES]
    return _dump("src/hostler/install/admission.py", {"policies": policies, "binding": dict(BINDING_SPEC)})


def webhooks_file() -> str:
    """The template fills in the namespace of the release."""
    configurations = [
        {"kind": made["kind"], "name": made["metadata"]["name"], "webhooks": made["webhooks"]}
        for made in webhook_configurations("")
    ]
    return _dump("src/hostler/metal/kinds/webhook_objects.py", {"configurations": configurations})


def _dump(source: str, table: Json) -> str:
    head = f"# Made from {source} by `make chart`: edit that.\n"
    return head + yaml.safe_dump(table, sort_keys=False, width=1000)


def _entry(right: Right) -> Json:
    entry: Json = {"group": right.group, "resource": right.plural, "verbs": list(right.verbs), "why": right.why}
    if right.namespace:
        entry["namespace"] = right.namespace
    if right.names:
        entry["names"] = list(right.names)
    if right.openshift:
        entry["openshift"] = True
    if right.limited_by:
        entry["limitedBy"] = right.limited_by
    return entry


def crd_file(made: Json) -> str:
    """Kept by Helm on uninstall: with it would go the owner's decisions, or every pause."""
    made["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    return "# Made from src/hostler/apis/fleet.py by `make chart`: edit that.\n" + yaml.safe_dump(
        made, sort_keys=False, width=120
    )


# -- the schema of the values


def schema() -> Json:
    """What `helm install` refuses before anything reaches the cluster: wrong names, types and numbers."""
    named = {
        capability.name: {"type": "boolean", "description": capability.help}
        for capability in CAPABILITIES
        if not capability.always
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart hostler",
        **_object(
            capabilities=_object(**named),
            dryRun=_BOOL,
            settings=_object(**{setting.name: _setting(setting) for setting in IN_CONFIG_MAP}),
            vcenter={
                **_object(
                    host=_TEXT, user=_TEXT, password=_TEXT, existingSecret=_NAME, vcentersSecret=_NAME,
                    caBundle=_object(
                        configMapName=_NAME, key=_TEXT, mountPath={"type": "string", "pattern": "^/.+"}
                    ),
                    tlsVerify=_BOOL,
                    certificateSha256={"type": "array", "items": {"type": "string", "pattern": _SHA256}},
                ),
                **_WHOLE_LOGIN,
            },
            history=_object(existingSecret=_NAME),
            hub=_hub(),
            openshift=_BOOL,
            image=_object(
                repository={"type": "string", "minLength": 1}, tag=_TEXT,
                digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            ),
            imagePullSecrets={"type": "array", "items": {"type": "object"}},
            nameOverride=_OVERRIDE, fullnameOverride=_OVERRIDE,
            podSecurityContext={"type": "object"}, securityContext={"type": "object"},
            replicas={"type": "integer", "minimum": 0, "maximum": 9},
            logLevel={"enum": list(foundation.LOG_LEVEL.reader.words)},
            crds=_object(install=_BOOL),
            admissionPolicies=_object(enabled=_BOOL),
            rbac=_object(create=_BOOL, people=_BOOL),
            metrics=_object(authentication=_BOOL),
            web=_object(sessionSecret=_NAME),
            serviceAccount=_object(create=_BOOL, name=_NAME, annotations=_MAP),
            podDisruptionBudget=_object(enabled=_BOOL, maxUnavailable=_SHARE),
            networkPolicy=_network_policy(),
            serviceMonitor=_object(
                enabled=_BOOL, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}, labels=_MAP
            ),
            prometheusRule=_object(enabled=_BOOL, labels=_MAP),
            dashboard=_object(enabled=_BOOL, labels=_MAP),
            resources={"type": "object"}, podAnnotations=_MAP, podLabels=_MAP, nodeSelector=_MAP,
            tolerations={"type": "array"}, affinity={"type": "object"}, topologySpreadConstraints={"type": "array"},
            extraEnv=_NAMED, extraVolumes=_NAMED, extraVolumeMounts=_NAMED,
            priorityClassName=_TEXT, **{"global": {"type": "object"}},
        ),
    }  # fmt: skip


_BOOL: Json = {"type": "boolean"}
_TEXT: Json = {"type": "string"}
_NAME: Json = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$"}
_SHA256 = "^([0-9A-Fa-f]{2}:?){32}$"
# Also of a Service, and cut at 50.
_OVERRIDE: Json = {"type": "string", "pattern": "^([a-z]([a-z0-9-]{0,48}[a-z0-9])?)?$"}
_MAP: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_CIDR = r"^([0-9]{1,3}([.][0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*/[0-9]{1,3})$"
_SHARE: Json = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+%$"}]}
_NAMED: Json = {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}}}
# A host needs a login: a Secret that exists, or user and password for one of ours.
_FILLED: Json = {"minLength": 1}
_WHOLE_LOGIN: Json = {
    "if": {"properties": {"host": _FILLED, "existingSecret": {"maxLength": 0}}, "required": ["host"]},
    "then": {"properties": {"user": _FILLED, "password": _FILLED}, "required": ["user", "password"]},
}


def _hub() -> Json:
    """Whoever opens a way to the step API says under which name hosts find it."""
    host = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$"}
    open_: Json = {
        "if": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]},
        "then": {"properties": {"host": _FILLED}, "required": ["host"]},
    }
    return _object(
        url={"type": "string", "pattern": "^(https?://.+)?$"}, plainHTTP=_BOOL, tlsSecret=_NAME,
        caBundle=_object(configMapName=_NAME, key=_TEXT),
        service=_object(
            type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, annotations=_MAP,
            port={"type": "integer", "minimum": 1, "maximum": 65535},
        ),
        ingress={
            **_object(enabled=_BOOL, host=host, className=_TEXT, tlsSecret=_NAME, annotations=_MAP), **open_,
        },
        route={
            **_object(
                enabled=_BOOL, host=host, termination={"enum": ["", "edge", "passthrough", "reencrypt"]},
                destinationCACertificate=_TEXT, annotations=_MAP,
            ),
            **open_,
        },
    )  # fmt: skip


def _network_policy() -> Json:
    """With the policy on, the API server's networks are needed: the CLI comes through its proxy."""
    named = _object(
        enabled=_BOOL, apiServer={"type": "array", "items": {"type": "string", "pattern": _CIDR}},
        egressPorts={"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
        **{"from": {"type": "array", "items": {"type": "object"}}},
    )  # fmt: skip
    return {
        **named,
        "if": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]},
        "then": {"properties": {"apiServer": {"minItems": 1}}, "required": ["apiServer"]},
    }


def _object(**properties: Json) -> Json:
    """What templates look into must be there: in a values file `hub:` with nothing below it takes the default away."""
    needed = [name for name, part in properties.items() if part.get("properties") and name != "settings"]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": needed}


def _setting(setting: AnySetting) -> Json:
    reader = setting.reader
    said: Json = {"description": f"{setting.help} Must be {reader.allowed}."}
    if reader.switch:
        return {**said, "enum": [True, False, "true", "false"]}
    if reader.bounds is not None:
        least, most = reader.bounds
        number: Json = {
            "type": "integer" if reader.whole else "number",
            "minimum": least,
            **({"maximum": most} if most is not None else {}),
        }
        plain = "[0-9]+" if reader.whole else "[0-9]+([.][0-9]+)?"
        text = f"^({reader.pattern or plain})$"
        return {**said, "anyOf": [number, {"type": "string", "pattern": text}]}
    if reader.pattern:
        return {
            **said,
            # Empty: unset, as in a pod's environment.
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^({reader.pattern})?$"}],
        }
    if reader.words:
        return {**said, "enum": list(reader.words)}
    return {**said, "type": ["string", "integer"]}


def main() -> None:
    root = Path(__file__).resolve().parents[3]
    for path, text in files(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
