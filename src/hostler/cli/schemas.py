"""The shape of what every command prints with `-o json` (and `-o yaml`), and its JSON Schema.

`make chart` writes them into docs/schemas; tests compare them with what the commands print.
"""

from __future__ import annotations

from typing import Any

import msgspec


def shapes() -> dict[str, Any]:
    """By command. Several shapes of one command: it depends on its flags."""
    from hostler.apis.fleet import ExpectedHost
    from hostler.cli import answers
    from hostler.cli.pause_objects import Outcome
    from hostler.explain.doctor import Finding
    from hostler.explain.registry import Answer
    from hostler.explain.wire import Config, StatusAnswer
    from hostler.history.wire import HistoryAnswer
    from hostler.ingress.status import IngressLine as Ingress
    from hostler.install.people import PeopleRole
    from hostler.install.rights import Right
    from hostler.inventory.operations import OperationsAnswer
    from hostler.inventory.wire import HostAnswer, HostsAnswer
    from hostler.maintenance.status import MaintenanceStatus
    from hostler.metal.listing import Capacity, HostLine
    from hostler.metal.migration.takeover import Line as Takeover
    from hostler.platform.status import PlatformStatus as Platform
    from hostler.reclaim.commands import Line as Reclaim
    from hostler.vsphere.pins import Entry

    trusted = msgspec.defstruct("TrustedVcenters", [("trusted", tuple[Entry, ...]), ("unreadable", dict[str, str])])
    return {
        "config": Config,
        "version": answers.Versions,
        "status": StatusAnswer,
        "explain": Answer,
        "plan": Answer,
        "doctor": list[Finding],
        "hosts": HostsAnswer,
        "host": HostAnswer,
        "operations": OperationsAnswer,
        "history show": HistoryAnswer,
        "pause": Outcome,
        "resume": Outcome,
        "hold": answers.NodeResults,
        "release": answers.NodeResults,
        "drain": answers.NodeResults,
        "maintenance status": MaintenanceStatus,
        "maintenance plan": Answer,
        "vcenter show": trusted,
        "vcenter trust": Entry | answers.CertificateShown,
        "ingress status": list[Ingress],
        "metal hosts": list[HostLine],
        "metal capacity": Capacity,
        "metal takeover": list[Takeover],
        "metal withdraw": answers.Withdrawn,
        "install plan": list[answers.LayoutStep],
        "install manifests": answers.ManifestsWritten,
        "platform status": Platform,
        "platform withdraw": answers.Withdrawn,
        "platform remove-driver": answers.DriverRemoved,
        "join csrs": list[answers.RequestJudged],
        "join expect": list[answers.HostExpected] | ExpectedHost | answers.Unexpected,
        "join approve": answers.RequestJudged,
        "reclaim status": list[Reclaim],
        "reclaim start": answers.AgentAsked,
        "reclaim cancel": answers.AgentAsked,
        "reclaim retry": answers.AgentAsked,
        "rights": list[Right] | list[PeopleRole],
        "crds": answers.Definitions | answers.CrdsInstalled,
        "sandbox up": answers.SandboxShown,
        "sandbox status": answers.SandboxShown,
        "sandbox down": answers.SandboxEnded,
        "sandbox build": dict[str, str],
        "sandbox workload": answers.WorkloadConnected,
        "sandbox power": dict[str, Any],
        "sandbox maintenance": dict[str, Any],
        "sandbox fault": dict[str, Any],
        "sandbox crash": dict[str, Any],
        "sandbox recover": dict[str, Any],
    }


def schema_of(command: str, shape: Any) -> dict[str, Any]:
    """JSON Schema 2020-12 of one command's output."""
    made = _schema(shape)
    title = f"hostler {command} -o json"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}


def _schema(shape: Any) -> dict[str, Any]:
    """msgspec reads no union of several records, so their schemas stand side by side."""
    import types

    if not isinstance(shape, types.UnionType):
        return msgspec.json.schema(shape, ref_template="#/$defs/{name}")
    parts = [msgspec.json.schema(part, ref_template="#/$defs/{name}") for part in shape.__args__]
    definitions = {name: schema for part in parts for name, schema in part.pop("$defs", {}).items()}
    return {"anyOf": parts, "$defs": definitions}
