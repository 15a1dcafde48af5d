"""`clusterctl move` as far as one API server can play it: from one namespace into another, step by step.

The steps and their order are those of clusterctl's object mover: pause the Cluster, wait while an object carries
block-move, create owners before what they own (annotations and finalizers as they are, no status, new UIDs), delete in
the opposite order with the annotation delete-for-move in place of all others and without finalizers, go on.
What differs: names of the namespace are rewritten, as a mutator of clusterctl's library does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.real.metal_world import HOSTS, IPAM, METAL, Json, World

CAPI = "/apis/cluster.x-k8s.io/v1beta2"
BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"
DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"
MOVE_HIERARCHY = "clusterctl.cluster.x-k8s.io/move-hierarchy"
HOST_OF = "metal3.io/BareMetalHost"
# Owners before what they own.
ORDER = (
    (CAPI, "clusters"), (HOSTS, "baremetalhosts"), (IPAM, "ippools"),
    (METAL, "metal3datatemplates"), (METAL, "metal3clusters"), (CAPI, "machines"), (METAL, "metal3machines"),
    (METAL, "metal3dataclaims"), (METAL, "metal3datas"), (IPAM, "ipclaims"), (IPAM, "ipaddresses"),
    ("/api/v1", "secrets"),
)  # fmt: skip


class Move:
    """From the namespace of `source` into that of `target`, which is empty."""

    def __init__(self, source: World, target: str) -> None:
        self.source, self.target, self._api = source, target, source.api

    def pause(self) -> None:
        self._api.patch(self.source.capi("clusters", self.source.cluster), {"spec": {"paused": True}})

    def blocked_by(self) -> list[str]:
        """For which objects clusterctl waits."""
        return [
            f"{plural}/{one['metadata']['name']}"
            for plural, _, one in self._graph()
            if BLOCK_MOVE in one["metadata"].get("annotations", {})
        ]

    def copy(self) -> None:
        uids: dict[str, str] = {}
        for _, path, one in self._graph():
            code, answer = self._api.call("POST", self._there(path), self._copied(one, uids))
            assert code == 201, (path, answer.get("message"))
            uids[one["metadata"]["uid"]] = answer["metadata"]["uid"]

    def delete_source(self) -> None:
        for _, path, one in reversed(list(self._graph())):
            where = f"{path}/{one['metadata']['name']}"
            gone = dict.fromkeys(one["metadata"].get("annotations", {}))
            self._api.patch(where, {"metadata": {"annotations": {**gone, DELETE_FOR_MOVE: ""}}})
            self._api.patch(where, {"metadata": {"finalizers": []}})
            self._api.delete(where)

    def go_on(self) -> None:
        where = self._there(self.source.capi("clusters", self.source.cluster))
        status = {"status": {"initialization": {"infrastructureProvisioned": True}}}
        self._api.patch(f"{where}/status", status)  # Cluster API's own controller finds it out again
        self._api.patch(where, {"spec": {"paused": False}})

    def left(self) -> list[str]:
        """What is still there of what was moved."""
        return [f"{plural}/{one['metadata']['name']}" for plural, _, one in self._graph()]

    def _graph(self) -> Iterator[tuple[str, str, Json]]:
        """What is in scope: hosts only by their label, for no owner brings them along."""
        for group, plural in ORDER:
            path = f"{group}/namespaces/{self.source.namespace}/{plural}"
            for one in self._api.items(path):
                if plural != "baremetalhosts" or MOVE_HIERARCHY in one["metadata"].get("labels", {}):
                    yield plural, path, one

    def _there(self, path: str) -> str:
        return path.replace(f"/namespaces/{self.source.namespace}/", f"/namespaces/{self.target}/")

    def _copied(self, one: Json, uids: dict[str, str]) -> Json:
        meta = one["metadata"]
        kept = {
            name: meta[name] for name in ("name", "namespace", "labels", "annotations", "finalizers") if name in meta
        }
        owners = [
            {**owner, "uid": uids[owner["uid"]]} for owner in meta.get("ownerReferences", []) if owner["uid"] in uids
        ]
        body = {name: value for name, value in one.items() if name not in ("status", "metadata")}
        copied: Json = self._rewritten({**body, "metadata": {**kept, "ownerReferences": owners}})
        annotations = copied["metadata"].get("annotations", {})
        if HOST_OF in annotations:
            annotations[HOST_OF] = annotations[HOST_OF].replace(f"{self.source.namespace}/", f"{self.target}/")
        return copied

    def _rewritten(self, value: Any) -> Any:
        """References to the namespace; all other words, provider ids among them, stay."""
        if isinstance(value, list):
            return [self._rewritten(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self.target if name == "namespace" and one == self.source.namespace else self._rewritten(one)
            for name, one in value.items()
        }
