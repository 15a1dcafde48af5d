"""A hub by plain HTTP: the operator and the agent on a node refuse it at the start, unless a setting accepts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hostler.capabilities import read_settings
from hostler.errors import Complaint, Exit
from hostler.reclaim.agent_manifests import Order, agent_environment
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.model import SpokeNode
from hostler.reclaim.settings import HUB_PLAIN_HTTP, HUB_URL

PLAIN = ("http://hub.example:8090", "HTTP://hub.example", " http://hub.example/ ")


def wrong_with(**env: str) -> str:
    """What an operator with reclaim refuses to start with; nothing where it starts."""
    try:
        read_settings({}, {"HOSTLER_ONLY": "reclaim", **env})
    except Complaint as complaint:
        return complaint.sentence if complaint.code is Exit.SETTING else ""
    return ""


@pytest.mark.parametrize("url", PLAIN)
def test_a_hub_by_plain_http_is_refused(url: str) -> None:
    refused = wrong_with(HUB_URL=url)
    assert refused.startswith(
        "HUB_URL (environment HUB_URL) is plain HTTP: anyone on the network path reads the tokens"
    )
    assert "HOSTLER_HUB_PLAIN_HTTP=true" in refused
    assert wrong_with(HUB_URL=url, HOSTLER_HUB_PLAIN_HTTP="false") == refused
    assert wrong_with(HUB_URL=url, HOSTLER_HUB_PLAIN_HTTP="true") == ""


@pytest.mark.parametrize("only", ["", "join", "metal,join"])
def test_without_reclaim_the_hubs_address_stops_nothing(only: str) -> None:
    assert wrong_with(HUB_URL=PLAIN[0], HOSTLER_ONLY=only) == ""
    assert wrong_with(HUB_URL=PLAIN[0], HOSTLER_ONLY=f"{only},reclaim".strip(","))


def test_a_hub_with_tls_or_none_is_accepted() -> None:
    assert wrong_with(HUB_URL="HTTPS://hub.example") == ""
    assert wrong_with() == ""
    assert read_settings({}, {})[HUB_PLAIN_HTTP] is False
    assert read_settings({}, {})[HUB_URL] == ""


def started_agent(folder: Path, **told: str) -> tuple[int, str]:
    """The agent as its pod starts it, with a hub that nobody serves."""
    (folder / "token").write_text("x")
    needed = {"INFRA_ENV_ID": "i", "HOST_ID": "h", "TOKEN_FILE": str(folder / "token"), "HOST_MOUNT": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "hostler.agent"],
        env={"PATH": os.environ["PATH"], "CA_FILE": "nowhere", **needed, **told},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_the_agent_refuses_a_hub_by_plain_http(tmp_path: Path) -> None:
    code, said = started_agent(tmp_path, HUB_URL="http://127.0.0.1:1")
    assert (code, "HUB_URL is not https://" in said) == (3, True)
    # Accepted, it goes on to the next thing that is wrong here.
    for told in ({"HUB_URL": "http://127.0.0.1:1", "HUB_PLAIN_HTTP": "true"}, {"HUB_URL": "https://127.0.0.1:1"}):
        code, said = started_agent(tmp_path, **told)
        assert (code, "The CA file nowhere cannot be read" in said) == (3, True), said


@pytest.mark.parametrize(("url", "accepts"), [("http://hub", True), ("HTTP://hub", True), ("https://hub", False)])
def test_the_pod_accepts_plain_http_only_where_the_operator_does(url: str, accepts: bool) -> None:
    node = SpokeNode("n", "u", "", "b", False, "", True)
    order = Order(
        host="h", host_uid="u", node=node, infra_env="i", artifacts=Artifacts("k", "i", "r"), hub_url=url,
        image="agent:1", token="t",
    )  # fmt: skip
    told: Mapping[str, str] = agent_environment(order)
    assert (told.get("HUB_PLAIN_HTTP") == "true") == accepts
