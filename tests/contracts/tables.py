"""Contracts that the code keeps in tables: settings, commands, values of the chart, CRDs, rights, answers."""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml

import hostler
from hostler.capabilities import CAPABILITIES, SETTINGS
from hostler.cli.main import app, execute
from tests.contracts.source import Source
from tests.contracts.words import answers_asked

CHART = Path(__file__).parents[2] / "chart"


def collect_settings() -> dict[str, Any]:
    """Each setting by its environment variable."""
    return {
        one.name: {
            "flag": one.flag if one.has_flag else "none",
            "key": one.key if one.in_file else "none",
            "default": one.show(one.default),
            "allowed": one.reader.allowed,
            "secret": one.secret,
        }
        for one in sorted(SETTINGS, key=lambda setting: setting.name)
    }


def collect_commands() -> dict[str, list[str]]:
    """Each command with its arguments and options; the settings among them are in `settings` too."""
    return dict(sorted(_commands(typer.main.get_command(app), "hostler")))


def _commands(command: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    inner = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from _commands(one, f"{path} {name}")
    if not inner or command.params:
        context = typer.Context(command, info_name=path)
        yield path, sorted(_parameter(one, context) for one in command.params)


def _parameter(one: Any, context: typer.Context) -> str:
    """As on the command line and in its help: `--output -o <choice>`, `NODE <str>, required`."""
    names = [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [one.metavar or one.name.upper()]
    facts = ["required"] * one.required + ["repeated"] * (one.multiple or one.nargs != 1)
    return ", ".join([f"{' '.join(names)} {one.display_type(context)}".strip(), *facts])


def collect_values() -> dict[str, Any]:
    """Each value of the chart with its default; for what a map may hold beyond that, its schema."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    return dict(sorted(_flat(values, "")))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def collect_definitions() -> dict[str, Any]:
    """Each CRD of ours: whatever a module gives as `..._definition()`."""
    found = {}
    for module in _modules():
        for name, function in vars(module).items():
            if (
                name.endswith("_definition")
                and inspect.isfunction(function)
                and not inspect.signature(function).parameters
            ):
                made = function()
                if made.get("kind") == "CustomResourceDefinition":
                    found[made["metadata"]["name"]] = made["spec"]
    return _plain(dict(sorted(found.items())))


def _modules() -> Iterator[Any]:
    for one in pkgutil.walk_packages(hostler.__path__, "hostler."):
        if one.name.split(".")[1] not in ("sandbox", "ship", "agent", "__main__") and "crd" in one.name.split(".")[-1]:
            yield importlib.import_module(one.name)


def collect_objects() -> dict[str, Any]:
    """Each object of an installation with everything on, and what each role allows."""
    everything = ",".join(one.name for one in CAPABILITIES if not one.always)
    found = {}
    for openshift in (False, True):
        words = ["manifests", "--image", "x", "--only", everything, "--vcenter-secret", "v"]
        printed = io.StringIO()
        with redirect_stdout(printed):
            code = execute([*words, *(["--openshift"] if openshift else [])])
        assert code == 0, "hostler manifests failed"
        found["on OpenShift" if openshift else "on Kubernetes"] = dict(sorted(_objects(printed.getvalue())))
    return found


def _objects(text: str) -> Iterator[tuple[str, Any]]:
    for one in yaml.load_all(text, Loader=yaml.CSafeLoader):
        about = one["metadata"]
        where = f"{about['namespace']}/" if "namespace" in about else ""
        rules = sorted(_rule(rule) for rule in one.get("rules") or ())
        shown: dict[str, Any] = {"rules": rules} if rules else {}
        if "aggregationRule" in one or any("aggregate-to" in key for key in about.get("labels", {})):
            shown["aggregated to"] = sorted(key for key in about.get("labels", {}) if "aggregate-to" in key)
        yield f"{one['kind']} {where}{about['name']}", shown


def _rule(rule: dict[str, Any]) -> str:
    groups = ",".join(one or "core" for one in rule.get("apiGroups", ()))
    what = ",".join(rule.get("resources", rule.get("nonResourceURLs", ())))
    names = f" named {','.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
    return f"{','.join(rule['verbs'])}: {what} of {groups or 'no group'}{names}"


def collect_answers(source: Source) -> dict[str, Any]:
    """Each path of the read API that the CLI asks, with the schema of its answer."""
    types = {
        path: getattr(importlib.import_module(module), name) for path, (module, name) in answers_asked(source).items()
    }
    schemas, components = msgspec.json.schema_components(list(types.values()), ref_template="{name}")
    paths = dict(zip(types, schemas, strict=True))
    return _plain({"paths": paths, "records": {name: _without_words(one) for name, one in sorted(components.items())}})


def _without_words(schema: Any) -> Any:
    """The docstrings of records are no contract."""
    if isinstance(schema, dict):
        return {key: _without_words(one) for key, one in schema.items() if key not in ("description", "title")}
    return [_without_words(one) for one in schema] if isinstance(schema, list) else schema


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """As it is on the wire: no tuples, no enums, no shared parts."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    return made
