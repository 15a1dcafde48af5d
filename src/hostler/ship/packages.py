"""The table of packages in docs/architecture.md: what each is for, by its docstring, and what of ours it imports."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import grimp

import hostler

BEGIN, END = "<!-- packages, made by `make chart`: begin -->", "<!-- end -->"
ROOT = Path(hostler.__file__).parent
# Beside the packages, the modules that hold them together; the other modules are small and import no package.
WIRING = ("capabilities", "capability", "shared", "operator")


@cache
def import_graph() -> grimp.ImportGraph:
    """Who imports whom, other people's packages included, imports inside of functions too."""
    return grimp.build_graph("hostler", include_external_packages=True, cache_dir=None)


def package_imports() -> dict[str, frozenset[str]]:
    """Each package, and each module of WIRING, with those it imports itself."""
    names = (*(path.parent.name for path in ROOT.glob("*/__init__.py")), *WIRING)
    graph = import_graph()
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        own = _part_of(module)
        if own in found:
            found[own] |= {
                _part_of(imported_module) for imported_module in graph.find_modules_directly_imported_by(module)
            } & found.keys()
    return {name: frozenset(imported - {name}) for name, imported in found.items()}


def _part_of(module: str) -> str:
    root, _, rest = module.partition(".")
    return rest.partition(".")[0] if root == "hostler" else ""


def placed(page: str) -> str:
    """The page with the table as it is now, from what is imported by all to what imports all."""
    imports = package_imports()
    before, _, rest = page.partition(BEGIN)
    lines = ["| package | what it is for | imports |", "|---|---|---|"]
    for name in sorted(imports, key=lambda package: (len(_reached(package, imports)), package)):
        shown = f"`{name}.py`" if name in WIRING else f"`{name}/`"
        listed = ", ".join(f"`{package}`" for package in sorted(imports[name])) or "-"
        lines.append(f"| {shown} | {summary_of(ROOT / name).removesuffix(' Pure.')} | {listed} |")
    table = "\n".join(lines)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def _reached(name: str, imports: Mapping[str, frozenset[str]]) -> set[str]:
    reached, left = set[str](), [name]
    while left:
        for package in imports[left.pop()] - reached:
            reached.add(package)
            left.append(package)
    return reached


def summary_of(place: Path) -> str:
    """The first paragraph of a package's or module's docstring, on one line."""
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())
