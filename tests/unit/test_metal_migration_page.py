"""docs/metal-migration.md against the code: metrics, controllers, and the names of what is taken over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hostler.capabilities import BY_NAME, SETTINGS, read_settings
from hostler.kube.client import Client
from hostler.metal.capability import MetalCapability
from tests.sharing import share
from tests.unit.nowhere import Nowhere

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/metal-migration.md").read_text()
METRICS: dict[str, Any] = yaml.safe_load((ROOT / "tests/contracts/snapshots/metrics.yaml").read_text())
# What the Kubebuilder book lists of controller-runtime, and what its certificate watcher adds.
THEIRS = {
    "certwatcher_read_certificate_errors_total", "certwatcher_read_certificate_total",
    "controller_runtime_active_workers", "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_reconcile_errors_total", "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_time_seconds", "controller_runtime_reconcile_total",
    "controller_runtime_terminal_reconcile_errors_total", "controller_runtime_webhook_latency_seconds",
    "controller_runtime_webhook_panics_total", "controller_runtime_webhook_requests_in_flight",
    "controller_runtime_webhook_requests_total", "leader_election_master_status", "rest_client_requests_total",
    "workqueue_adds_total", "workqueue_depth", "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds", "workqueue_retries_total", "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds",
}  # fmt: skip


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(text: str) -> Iterator[tuple[str, str]]:
    """The two cells of each row; headings are rows too."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("|") and len(cells) == 2:
            yield cells[0], cells[1]


def controllers() -> set[str]:
    """Those that metal really has, webhooks on."""

    async def made() -> set[str]:
        async with Client(Nowhere(), timeout=1) as client:
            settings = read_settings({}, {"HOSTLER_METAL_WEBHOOKS": "true"})
            metal = MetalCapability(share(client, ["metal"], settings))
            found = {*metal.controllers}
            await metal.close()
            return found

    return asyncio.run(made())


def test_every_metric_of_the_go_provider_has_a_row() -> None:
    left = {name for theirs, _ in rows(section("Metrics under other names")) for name in re.findall(r"\w+_\w+", theirs)}
    assert {
        name for name in left if name.startswith(("certwatcher", "controller_", "leader", "rest", "work"))
    } == THEIRS


def test_every_metric_of_ours_exists_with_the_labels_it_is_shown_with() -> None:
    shown = re.findall(r"`(hostler_\w+?)(?:\{([^}]*)\})?`", section("Metrics under other names"))
    assert len(shown) > 12
    for name, labels in shown:
        made = METRICS.get(name.removesuffix("_total"))
        assert made is not None, name
        assert name.endswith("_total") is (made["type"] == "counter"), name
        asked = {label.partition("=")[0].strip() for label in labels.split(",") if label.strip()}
        assert asked <= {*made["labels"]}, name


def test_results_that_are_shown_are_counted() -> None:
    source = (ROOT / "src/hostler/kube/controller.py").read_text()
    shown = re.findall(r'hostler_reconciles_total\{controller, result="(\w+)"', PAGE)
    assert {*shown} == {"bug", "error", "terminal"}
    assert all(f'return "{result}"' in source for result in shown)


def test_every_controller_has_a_row() -> None:
    shown = {
        name for _, ours in rows(section("Metrics under other names")) for name in re.findall(r"`(metal [^`]+)`", ours)
    }
    assert shown == controllers()


def test_the_signs_of_the_go_provider_are_those_that_are_looked_for() -> None:
    apart = PAGE.partition("### What keeps the two apart")[2]
    (incumbent,) = BY_NAME["metal"].incumbents
    for place in (*incumbent.deployments, *incumbent.leases, *incumbent.webhook_services):
        assert f"`{place.namespace}/{place.name}`" in apart


def test_every_name_of_what_is_taken_over_is_one_that_metal_uses() -> None:
    """Annotations, labels and finalizers, in the second and third column."""
    source = "".join(path.read_text() for path in (ROOT / "src/hostler").rglob("*.py"))
    source = source.replace("{GROUP}", "infrastructure.cluster.x-k8s.io")
    text = section("What is taken over")
    found = set(re.findall(r"`((?:[a-z0-9-]+\.)+[a-z0-9-]+/[\w-]+)`", text))
    assert len(found) > 10
    assert [name for name in sorted(found) if f'"{name}"' not in source] == []


def test_every_setting_that_takes_over_a_flag_exists() -> None:
    known = {setting.name for setting in SETTINGS} | {setting.flag for setting in SETTINGS}
    told = re.search(r"\*\*The same settings(.*?)\n5\. ", PAGE, re.DOTALL)
    assert told is not None
    assert (
        {"CAPM3_FAST_TRACK", "HOSTLER_METAL_NAMESPACES", "HOSTLER_METAL_WATCH_FILTER"}
        <= set(re.findall(r"\b(?:CAPM3|HOSTLER|ENABLE)_\w+", told[1]))
        <= known
    )
    assert "--enable-bmh-name-based-preallocation" in known
