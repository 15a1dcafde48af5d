"""Objects described once for two readers: `hostler manifests` fills them in, `make chart` writes them as templates.

A blueprint is what YAML has, mappings, lists and scalars, and in it what depends on who installs: `Value` is one value,
`FromValues` what only a values file can say. Either may stand for several fields of a mapping: as a key, with `...`.
What is there only sometimes stands under a `When`: in a mapping as `WHEN: {fields}`, in a list as `(WHEN, *entries)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostler.install.roles import Account


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to run. `vcenter`: a Secret with VCENTER_HOST, VCENTER_USER and VCENTER_PASSWORD."""

    account: Account
    image: str
    on: tuple[str, ...] = ()
    label: str = ""  # of the nodes that maintenance may empty
    settings: Mapping[str, str] = field(default_factory=dict)  # further ones, by their environment names
    vcenter: str = ""
    ca: str = ""  # a ConfigMap with the vCenter's CA, ca.pem
    openshift: bool = False
    policies: bool = True  # the API server has ValidatingAdmissionPolicy


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of Helm, and what it is without Helm. `lines`: it makes a mapping or a list, not a scalar."""

    helm: str
    here: Callable[[Wanted], Any]
    lines: bool = False


@dataclass(frozen=True, slots=True)
class When:
    """A condition of Helm, and whether it holds without Helm: never, where only the chart has a value for it."""

    helm: str
    here: Callable[[Wanted], object] = lambda _: False


@dataclass(frozen=True, slots=True)
class FromValues:
    """What the values file has under this name, as it is there. Without Helm: nothing."""

    name: str


def filled(blueprint: Any, wanted: Wanted) -> Any:
    """The object itself, for those without Helm."""
    match blueprint:
        case dict():
            return dict(_fields(blueprint, wanted))
        case list():
            return list(_entries(blueprint, wanted))
        case Value():
            return blueprint.here(wanted)
    return blueprint


def _fields(blueprint: dict[Any, Any], wanted: Wanted) -> Iterator[tuple[str, Any]]:
    for key, value in blueprint.items():
        match key, value:
            case When(), _:
                yield from _fields(value, wanted) if key.here(wanted) else ()
            case Value(), _:
                yield from key.here(wanted).items()
            case (FromValues(), _) | (_, FromValues()):
                pass
            case _:
                yield key, filled(value, wanted)


def _entries(blueprint: Iterable[Any], wanted: Wanted) -> Iterator[Any]:
    for entry in blueprint:
        match entry:
            case (When() as when, *more):
                yield from _entries(more, wanted) if when.here(wanted) else ()
            case FromValues():
                pass
            case _:
                yield filled(entry, wanted)
