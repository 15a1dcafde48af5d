"""The edge of a watch: a real store, and what the watch says about itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hostler.apis.fleet import NAME, Fleet, FleetSpec, Pause, PauseSpec
from hostler.kube.records import HasMetadata, Metadata
from hostler.kube.store import Store

R = TypeVar("R", bound=HasMetadata)
versions = itertools.count(1)


@dataclass
class Watching(Generic[R]):
    store: Store[R] = field(default_factory=Store)
    absent: bool = False
    forbidden: bool = False
    problem: str = ""
    silent: float | None = 1.0

    def age(self) -> float | None:
        return self.silent

    def sync(self) -> None:
        self.store.synced = True


def pauses() -> Watching[Pause]:
    """Read completely; there is none."""
    watch: Watching[Pause] = Watching()
    watch.sync()
    return watch


def fleets(**spec: object) -> Watching[Fleet]:
    """Read completely; there is the one."""
    watch: Watching[Fleet] = Watching()
    watch.sync()
    metadata = Metadata(name=NAME, resource_version=str(next(versions)))
    watch.store.put(Fleet(metadata=metadata, spec=FleetSpec(**spec)))  # type: ignore[arg-type]
    return watch


def pause(watch: Watching[Pause], name: str = "p", *, by: str = "", why: str = "", going: bool = False) -> Pause:
    """Somebody pauses: the object as the watch brings it."""
    metadata = Metadata(
        name=name, uid=f"uid-{name}", resource_version=str(next(versions)), deletion_timestamp="now" if going else ""
    )
    made = Pause(metadata=metadata, spec=PauseSpec(why=why, by=by))
    watch.store.put(made)
    return made


def resume(watch: Watching[Pause], name: str = "p") -> None:
    """The object is gone."""
    watch.store.remove(Pause(metadata=Metadata(name=name, resource_version=str(next(versions)))))
