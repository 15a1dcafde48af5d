"""A name is one part of a path: it never reaches another resource."""

from __future__ import annotations

import pytest

from hostler.kube.errors import NotFound
from hostler.kube.kinds import NODE, POD


@pytest.mark.parametrize("name", ["node-1/status", "..", ".", "", "a%2fb", "../../api/v1/secrets", "/"])
def test_what_no_object_can_be_called_is_not_found_and_not_sent(name: str) -> None:
    with pytest.raises(NotFound, match="can have the name"):
        NODE.path(name=name)
    with pytest.raises(NotFound, match="can have the name"):
        POD.path(name, "web")


def test_other_names_are_quoted() -> None:
    assert NODE.path(name="node 1?x=y#z") == "/api/v1/nodes/node%201%3Fx%3Dy%23z"
    assert NODE.path(name="system:node.a-b") == "/api/v1/nodes/system%3Anode.a-b"
