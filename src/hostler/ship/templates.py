"""The chart's templates, written from the blueprints of `hostler.install.manifests`: edit those, then `make chart`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from hostler.install.blueprint import FromValues, Value, When
from hostler.install.manifests import (
    CONTAINER_SECURITY,
    LABEL,
    OWN_AFFINITY,
    PLAIN_LABEL,
    POD_SECURITY,
    TEMPLATES,
)

HEAD = "{{- /* Made from src/hostler/install/manifests.py by `make chart`: edit that. */}}"


def files() -> Iterator[tuple[str, str]]:
    """Each template's name and text."""
    plain = f'{{{{- define "hostler.plainLabel" }}}}{{{{ if {PLAIN_LABEL} }}}}yes{{{{ end }}}}{{{{ end }}}}'
    label = f'{{{{- define "hostler.label" }}}}{{{{ {LABEL} }}}}{{{{ end }}}}'
    yield "_affinity.tpl", _text(label, plain, *_defined("hostler.affinity", OWN_AFFINITY))
    pod, container = _defined("hostler.podSecurity", POD_SECURITY), _defined("hostler.security", CONTAINER_SECURITY)
    yield "_security.tpl", _text(*pod, *container)
    for name, objects in TEMPLATES.items():
        yield name, _text(*(line for one in objects for line in ("---", *_fields(one, 0))))


def _defined(name: str, blueprint: dict[Any, Any]) -> tuple[str, ...]:
    return (f'{{{{- define "{name}" }}}}', *_fields(blueprint, 0), "{{- end }}")


def _text(*lines: str) -> str:
    return "\n".join((HEAD, *lines, ""))


def _fields(blueprint: dict[Any, Any], depth: int) -> Iterator[str]:
    for key, value in blueprint.items():
        match key, value:
            case When(), _:
                yield from _inside(f"if {key.helm}", _fields(value, depth), depth)
            case ((Value() | FromValues()), _):
                yield from _block(key, depth)
            case _, FromValues():
                lines = (_line(depth, f"{key}:"), _spliced("toYaml .", depth + 1))
                yield from _inside(f"with .Values.{value.name}", lines, depth)
            case (_, dict() | list()) | (_, Value(lines=True)):
                yield _line(depth, f"{key}:")
                yield from _block(value, depth + 1)
            case _:
                yield _line(depth, f"{key}: {_scalar(value)}")


def _entries(blueprint: Iterable[Any], depth: int) -> Iterator[str]:
    for entry in blueprint:
        match entry:
            case (When() as when, *more):
                yield from _inside(f"if {when.helm}", _entries(more, depth), depth)
            case FromValues():
                yield from _block(entry, depth)
            case dict():
                first, *rest = _fields(entry, depth + 1)
                yield _line(depth, f"- {first.lstrip()}")
                yield from rest
            case _:
                yield _line(depth, f"- {_scalar(entry)}")


def _block(blueprint: Any, depth: int) -> Iterator[str]:
    """What takes lines of its own."""
    match blueprint:
        case dict():
            yield from _fields(blueprint, depth)
        case list():
            yield from _entries(blueprint, depth)
        case Value():
            yield _spliced(blueprint.helm, depth)
        case FromValues():
            yield from _inside(f"with .Values.{blueprint.name}", [_spliced("toYaml .", depth)], depth)


def _inside(condition: str, lines: Iterable[str], depth: int) -> Iterator[str]:
    yield _line(depth, f"{{{{- {condition} }}}}")
    yield from lines
    yield _line(depth, "{{- end }}")


def _spliced(helm: str, depth: int) -> str:
    return _line(depth, f"{{{{- {helm} | nindent {2 * depth} }}}}")


def _line(depth: int, text: str) -> str:
    return "  " * depth + text


def _scalar(value: Any) -> str:
    if isinstance(value, Value):
        return f"{{{{ {value.helm} }}}}"
    plain = yaml.safe_dump(value, width=100_000).splitlines()[0]
    return plain if plain[0].isalnum() or plain[0] == "/" else json.dumps(value)
