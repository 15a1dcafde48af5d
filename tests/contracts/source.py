"""The text constants of the product's source, with names, f-strings and enums resolved as far as that needs no running.

Whatever cannot be resolved is `...`: it is shown in the snapshot instead of being left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

UNKNOWN = "..."
NOT_SHIPPED = ("sandbox", "ship")  # no part of the operator's image
Values = frozenset[str]
Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST = 64  # combinations of one f-string; more are unknown
NOTHING: Values = frozenset({UNKNOWN})


@dataclass
class Module:
    """One file: its tree, and what its names stand for."""

    name: str
    tree: ast.Module
    constants: dict[str, ast.expr] = field(default_factory=dict)  # X and Class.X
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)  # name here: (module, name there or "")


class Source:
    """Every module below a directory that holds the package `hostler`."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted((root / "hostler").rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if parts[1] not in NOT_SHIPPED:
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.modules[name] = _read(name, ast.parse(path.read_text(encoding="utf-8")))

    @cache  # noqa: B019  # a source lives as long as one comparison
    def texts(self) -> list[tuple[str, ast.expr, Module]]:
        """Every text that occurs as a value, folded: not the docstrings, not the parts of an f-string."""
        return list(self._texts())

    @cache  # noqa: B019
    def calls(self) -> list[tuple[ast.Call, Module, Function | None]]:
        """Every call, with the innermost function around it."""
        return [found for module in self.modules.values() for found in _calls(module.tree, module, None)]

    def _texts(self) -> Iterator[tuple[str, ast.expr, Module]]:
        for module in self.modules.values():
            skipped = _docstrings(module.tree) | _parts(module.tree)
            for node in _nodes(module.tree):
                if id(node) in skipped or not isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)):
                    continue
                for value in self.fold(node, module):
                    if value != UNKNOWN:
                        yield value, node, module

    def fold(self, node: ast.expr | None, module: Module, inside: Function | None = None, depth: int = 0) -> Values:
        """The texts that an expression can be."""
        if node is None or depth > 12:
            return NOTHING
        match node:
            case ast.Constant(value=str() as text):
                return frozenset({text})
            case ast.JoinedStr(values=parts):
                return self._joined([self.fold(part, module, inside, depth + 1) for part in parts])
            case ast.FormattedValue(value=value):
                return self.fold(value, module, inside, depth + 1)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([self.fold(one, module, inside, depth + 1) for one in (left, right)])
            case ast.IfExp(body=body, orelse=orelse):
                return self.fold(body, module, inside, depth + 1) | self.fold(orelse, module, inside, depth + 1)
            case ast.BoolOp(values=parts):
                return frozenset().union(*(self.fold(one, module, inside, depth + 1) for one in parts))
            case ast.Call(func=ast.Name(id="str"), args=[value]):
                return self.fold(value, module, inside, depth + 1)
            case ast.Name(id=name):
                local = _locals(inside).get(name, []) if inside is not None else []
                if local:
                    return frozenset().union(*(self.fold(one, module, inside, depth + 1) for one in local))
                return self._named(module, name, depth)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return self._named(module, f"{owner}.{name}", depth)
        return NOTHING

    def _named(self, module: Module, name: str, depth: int) -> Values:
        """What a name of a module stands for: X, Class.X, or X of a module or class that was imported."""
        if name in module.constants:
            return self.fold(module.constants[name], module, None, depth + 1)
        first, _, rest = name.partition(".")
        if first not in module.imported:
            return NOTHING
        where, there = module.imported[first]
        if f"{where}.{there}" in self.modules:  # a module: names.PAUSED
            where, there = f"{where}.{there}", ""
        target = self.modules.get(where)
        wanted = ".".join(one for one in (there, rest) if one)
        return self._named(target, wanted, depth + 1) if target is not None and wanted and depth < 12 else NOTHING

    @staticmethod
    def _joined(parts: list[Values]) -> Values:
        combinations = 1
        for part in parts:
            combinations *= len(part)
        if combinations > MOST:
            return NOTHING
        return frozenset("".join(one) for one in product(*parts))


def _read(name: str, tree: ast.Module) -> Module:
    module = Module(name, tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                module.constants |= {f"{node.name}.{key}": value for key, value in _bindings(inner)}
        module.constants |= dict(_bindings(node))
    for one in _nodes(tree):
        if isinstance(one, ast.ImportFrom) and one.module and not one.level:
            for alias in one.names:
                module.imported[alias.asname or alias.name] = (one.module, alias.name)
    return module


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What an assignment gives to which name, also `A, B = "a", "b"`."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpacked(target, value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, other in zip(targets, values, strict=True):
                yield from _unpacked(one, other)
        case ast.Tuple(), ast.IfExp(body=body, orelse=orelse):
            yield from _unpacked(target, body)
            yield from _unpacked(target, orelse)


@cache
def _nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node; a tree is gone through once, however often it is asked for."""
    return tuple(ast.walk(tree))


@cache
def _locals(inside: Function) -> dict[str, list[ast.expr]]:
    """Everything that each local name is ever given."""
    found: dict[str, list[ast.expr]] = {}
    for node in _nodes(inside):
        given = list(_bindings(node))
        match node:
            case ast.For(target=target, iter=ast.Tuple(elts=rows)):
                given += [pair for row in rows for pair in _unpacked(target, row)]
            case ast.NamedExpr(target=ast.Name(id=key), value=value):
                given.append((key, value))
        for key, value in given:
            found.setdefault(key, []).append(value)
    return found


def _calls(
    node: ast.AST, module: Module, inside: Function | None
) -> Iterator[tuple[ast.Call, Module, Function | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, module, inside
        around = child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else inside
        yield from _calls(child, module, around)


def _docstrings(tree: ast.Module) -> set[int]:
    return {
        id(node.value) for node in _nodes(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _parts(tree: ast.Module) -> set[int]:
    """What is shown as part of a larger text."""
    found: set[int] = set()
    for node in _nodes(tree):
        if isinstance(node, ast.JoinedStr):
            found |= {id(one) for one in node.values}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            found |= {id(one) for one in (node.left, node.right) if isinstance(one, (ast.Constant, ast.BinOp))}
    return found
