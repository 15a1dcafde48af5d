"""Contracts without a table of their own, found in the source: keys, conditions, Events, metrics, routes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.contracts.source import UNKNOWN, Function, Module, Source, Values

# PREFIX/NAME as on annotations, labels, taints and finalizers; the name may be made at run time.
KEY = re.compile(r"((?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*/[A-Za-z0-9._-]*)(?:=.*)?")
VERSION = re.compile(r".+/v\d+(?:(?:alpha|beta)\d+)?")
WORD = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z]+[a-z0-9]*)*|[A-Z]{2,}[a-z]\w*")
METRIC = re.compile(r"hostler_[a-z0-9_]+")
ROUTES = ("add_get", "add_post", "add_put", "add_patch", "add_delete", "add_route")


def collect_keys(source: Source) -> dict[str, list[str]]:
    """Every key that the code can write on an object or read from one, and the API versions it speaks."""
    finalizers = set(_finalizers(source))
    keys = {match[1] for text, _, _ in source.texts() if (match := KEY.fullmatch(text))} - finalizers
    versions = {one for one in keys if VERSION.fullmatch(one)}
    return {
        "finalizers": sorted(finalizers),
        "annotations, labels, taints and resources": sorted(keys - versions),
        "api versions": sorted(versions),
    }


def _finalizers(source: Source) -> Iterator[str]:
    """They need no slash, so they are known by the names of their constants."""
    for module in source.modules.values():
        for name, value in module.constants.items():
            if "FINALIZER" in name.upper():
                for part in value.elts if isinstance(value, (ast.Tuple, ast.List, ast.Set)) else [value]:
                    yield from source.fold(part, module) - {UNKNOWN}


def collect_words(source: Source) -> dict[str, list[str]]:
    """Every word in CamelCase, by package: reasons, types and kinds, whichever way they reach an object.

    This is the net under `collect_conditions` and `collect_events`, which resolve only what is written plainly.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for text, _, module in source.texts():
        if WORD.fullmatch(text):
            found[".".join(module.name.split(".")[1:2]) or "hostler"].add(text)
    return {package: sorted(words) for package, words in sorted(found.items())}


def collect_conditions(source: Source) -> dict[str, list[str]]:
    """Each type of condition with the reasons it can have; `...` stands for what is made at run time."""
    roots = [Callee(name, fields) for name, fields in _records(source, {"type", "reason"}) if "note" not in fields]
    found: dict[str, set[str]] = defaultdict(set)
    for types, reasons in _pairs(source, roots, ("type", "reason")):
        for one in types:
            found[one] |= {reason for reason in reasons if " " not in reason}  # a sentence is a record of another kind
    return {one: sorted(reasons) for one, reasons in sorted(found.items())}


def collect_events(source: Source) -> dict[str, list[str]]:
    """Each reason of an Event with its types, Normal or Warning; `...` stands for what is made at run time."""
    roots = [Callee("event", ("kind", "metadata", "type", "reason", "action", "note"))]
    roots += [Callee(name, fields) for name, fields in _records(source, {"reason", "note"})]
    found: dict[str, set[str]] = defaultdict(set)
    for kinds, reasons in _pairs(source, roots, ("type", "reason")):
        for one in reasons:
            found[one] |= kinds
    return {one: sorted(kinds) for one, kinds in sorted(found.items())}


@dataclass(frozen=True)
class Callee:
    """Something that is called: its parameters, and which of them has which role. Without a module: wherever it is."""

    name: str
    parameters: tuple[str, ...]
    roles: tuple[str | None, ...] = ()
    module: str = ""


def _records(source: Source, wanted: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every class with these fields, and the order of all its fields."""
    for module in source.modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                parts = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                fields = tuple(one.id for one in parts if isinstance(one, ast.Name))
                if wanted <= set(fields):
                    yield node.name, fields


def _pairs(source: Source, roots: list[Callee], wanted: tuple[str, str]) -> Iterator[tuple[Values, Values]]:
    """What a pair of arguments can be, over all calls; through functions that only hand their own arguments on."""
    waiting, seen = [replace(one, roles=wanted) for one in roots], set(roots)
    while waiting:
        callee = waiting.pop()
        for call, module, inside in source.calls():
            if _called(call) != callee.name or not _is_there(callee, call, module):
                continue
            given = _arguments(call, callee.parameters)
            exprs = [given.get(one or "") for one in callee.roles]
            helper = _handed_on(exprs, inside)
            if inside is not None and helper:
                handing = Callee(inside.name, _parameters(inside), helper, module.name)
                if handing not in seen:
                    seen.add(handing)
                    waiting.append(handing)
            first, second = (source.fold(one, module, inside) for one in exprs)
            if not (helper and (first | second) == {UNKNOWN}):
                yield first, second


def _is_there(callee: Callee, call: ast.Call, module: Module) -> bool:
    """Whether a call by this name is of that very function: two modules may have helpers of one name."""
    if not callee.module or module.name == callee.module:
        return True
    return isinstance(call.func, ast.Name) and module.imported.get(call.func.id, ("", ""))[0] == callee.module


def _handed_on(exprs: list[ast.expr | None], inside: Function | None) -> tuple[str | None, ...]:
    """Which parameters of the function around become which argument; empty if none does."""
    if inside is None:
        return ()
    names = set(_parameters(inside))
    found = tuple(one.id if isinstance(one, ast.Name) and one.id in names else None for one in exprs)
    return found if any(found) else ()


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _parameters(function: Function) -> tuple[str, ...]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return tuple(names[1:] if names[:1] == ["self"] else names)


def _arguments(call: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr]:
    found = dict(zip(parameters, call.args, strict=False))
    return found | {one.arg: one.value for one in call.keywords if one.arg}


def collect_metrics(source: Source) -> dict[str, Any]:
    """Each metric as it is made: of which type, with which labels. A counter is scraped as NAME_total."""
    found: dict[str, Any] = {}
    for call, module, inside in source.calls():
        kind = _called(call).strip("_").lower()
        if kind in ("counter", "gauge", "histogram", "summary") and call.args:
            for name in source.fold(call.args[0], module, inside):
                if METRIC.fullmatch(name):
                    found[name] = {"type": kind, "labels": list(_labels(source, call, module))}
    mentioned = {text for text, _, _ in source.texts() if METRIC.fullmatch(text)}
    return dict(sorted({**dict.fromkeys(mentioned, "made by no plain call"), **found}.items()))


def _labels(source: Source, call: ast.Call, module: Module) -> Iterator[str]:
    given = [*call.args[2:], *(one.value for one in call.keywords if one.arg in ("labelnames", "labels"))]
    for argument in given:
        parts = argument.elts if isinstance(argument, (ast.Tuple, ast.List)) else [argument]
        for part in parts:
            if not (isinstance(part, ast.Constant) and not isinstance(part.value, str)):
                yield from (one for one in source.fold(part, module) if one != UNKNOWN)


def collect_routes(source: Source) -> list[str]:
    """Every path that one of our servers answers, with its method."""
    found: set[str] = set()
    for call, module, inside in source.calls():
        if _called(call) in ROUTES and call.args:
            for path in source.fold(call.args[0], module, inside):
                if path != UNKNOWN:
                    found.add(f"{_called(call).removeprefix('add_').upper()} {path}")
    return sorted(found)


def answers_asked(source: Source) -> dict[str, tuple[str, str]]:
    """For each path of the read API that the CLI asks: the record it expects, as (module, class)."""
    found: dict[str, tuple[str, str]] = {}
    for call, module, inside in source.calls():
        if _called(call) not in ("ask_operator", "ask_operator_by"):
            continue
        for path in (one for arg in call.args for one in source.fold(arg, module, inside) if one.startswith("/v1/")):
            if isinstance(call.args[-1], ast.Name) and call.args[-1].id in module.imported:
                found[path] = module.imported[call.args[-1].id]
    return dict(sorted(found.items()))
