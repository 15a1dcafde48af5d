"""Every alert fires, with the words a person reads, and resolves: its own expression, judged by Prometheus' promtool.

Each story is some minutes of a bad state and then a good one. Debian has promtool in its package `prometheus`.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.maintenance.status import NORMAL
from hostler.ship import alerts
from hostler.ship.dashboard import PANELS
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
ROOMS = alerts.read(ROOT / "chart/alerts")
NONE = "_"  # no sample at all


@dataclass(frozen=True)
class Story:
    """`series`: what it is while bad and while good; of a counter (`_total`): by how much it grows each minute."""

    series: dict[str, tuple[float | str, float | str]]
    labels: dict[str, str] = field(default_factory=dict)
    value: str = ""

    @property
    def all_labels(self) -> dict[str, str]:
        return {"namespace": "h", **self.labels}


def one(name: str, bad: float, good: float = 0, value: str = "", **labels: str) -> Story:
    return Story({name: (bad, good)}, labels, value)


STORIES: dict[str, Story] = {
    "HostlerNoLeader": Story({'hostler_leader{pod="a"}': (0, 1), 'hostler_leader{pod="b"}': (0, 0)}),
    "HostlerAbsent": Story({'hostler_build_info{version="1"}': (NONE, 1)}, {"namespace": ""}),
    "HostlerPausedForLong": Story({'hostler_paused{pod="a"}': (1, 0), 'hostler_paused{pod="b"}': (0, 0)}),
    "HostlerFailing": one('hostler_reconciles_total{controller="holds",result="error"}', 3, controller="holds"),
    "HostlerBug": one('hostler_reconciles_total{controller="holds",result="bug"}', 1),
    "HostlerWritesRefused": one('hostler_writes_forbidden_total{capability="holds"}', 1, capability="holds"),
    "HostlerUnreadableObjects": one('hostler_objects_unreadable{kind="pods"}', 1, kind="pods"),
    "HostlerCeilingReached": Story(
        {'hostler_nodes{what="unavailable"}': (2, 1), 'hostler_nodes{what="ceiling"}': (2, 2)}
    ),
    "HostlerVCenterLost": one('hostler_vcenter_connected{vcenter="v"}', 0, 1, vcenter="v"),
    "HostlerVCenterLoginRefused": one('hostler_vcenter_credential_refused{vcenter="v"}', 1, vcenter="v"),
    "HostlerVCenterCertificateRefused": one('hostler_vcenter_certificate_refused{vcenter="v"}', 1, vcenter="v"),
    "HostlerMaintenanceBlocked": one('hostler_maintenance_blocked{reason="budget"}', 1, reason="budget"),
    "HostlerWorkerNotBack": one("hostler_maintenance_not_back", 1),
    "HostlerPowerOnOverdue": one("hostler_maintenance_power_on_timeouts_total", 1),
    "HostlerMachinesWithoutHost": one("hostler_metal_waiting", 4, value="4"),
    "HostlerRemediationGivenUp": one('hostler_metal_remediation_steps_total{step="HostUnhealthy"}', 1),
    # Time begins at 0 here: an end after 1000 s is near, one after a thousand days is not.
    "HostlerWebhookCertificateExpiring": one(
        "hostler_webhook_certificate_expiry_timestamp_seconds", 1_000_000, 86_400_000
    ),
    "HostlerHostsLeftToPeople": one(
        'hostler_reclaim_hosts{state="unbinding-pending-user-action"}', 2, value="2"
    ),
    "HostlerHistoryNotWritten": one("hostler_history_failing", 1),
    "HostlerHostsOverdue": one(
        'hostler_hosts_overdue{state="stopped",kind="vm"}', 2, value="2", state="stopped", kind="vm"
    ),
    "HostlerJoinFlood": one("hostler_join_flood", 1),
    "HostlerJoinSpokeNotFollowed": one('hostler_join_spoke_up{cluster="t/c"}', 0, 1, cluster="t/c"),
    "HostlerJoinSpokeFlood": one('hostler_join_spoke_flood{cluster="t/c"}', 1, cluster="t/c"),
    "HostlerJoinRequestsLeft": one('hostler_join_requests{act="leave"}', 2),
    "HostlerPlatformDegraded": one('hostler_platform_condition{type="Degraded"}', 1, -1),
    "HostlerPlatformFight": one('hostler_platform_reverts_total{daemonset="d"}', 1, daemonset="d"),
    "HostlerPlatformUnchecked": Story(
        {'hostler_platform_condition{type="Upgradeable"}': (-1, 1), 'hostler_vcenter_connected{vcenter="v"}': (0, 1)}
    ),
    "HostlerPodsWithoutDriver": one("hostler_platform_stranded_pods", 3, value="3"),
    "HostlerIngressRoutersMissing": Story(
        {
            'hostler_ingress_routers{controller="default",what="available"}': (1, 2),
            'hostler_ingress_routers{controller="default",what="wanted"}': (2, 2),
        },
        {"controller": "default"},
    ),
    "HostlerIngressWildcardMissesRouter": one(
        'hostler_ingress_wildcard_reaches_router{controller="default"}', 0, 1, controller="default"
    ),
    "HostlerIngressNoFittingNode": one(
        'hostler_ingress_no_fitting_node{controller="Deployment/n/d"}', 1, controller="Deployment/n/d"
    ),
    "HostlerIngressRefused": one(
        'hostler_ingress_refused{controller="Deployment/n/d",reason="NotMarked"}', 1,
        controller="Deployment/n/d", reason="NotMarked",
    ),
    "HostlerIngressFight": one('hostler_ingress_reverts_total{controller="default"}', 1, controller="default"),
}  # fmt: skip


AT_ONCE = {one.alert for found in ROOMS.values() for one in found if alerts.at_once(one)}


def minutes(span: str) -> int:
    number, unit = int(span[:-1]), span[-1]
    return number * {"s": 1, "m": 60, "h": 3600}[unit] // 60


def samples(name: str, bad: float | str, good: float | str, during: int, after: int) -> str:
    if NONE in (bad, good):
        return f"{bad}x{during + 1} {good}+0x{after}"  # `_x5` is five samples, `1+0x5` six
    if "_total" in name:
        grown = float(bad) * during
        return f"0+{bad}x{during} {grown}+{good}x{after}"
    return f"{bad}+0x{during} {good}+0x{after}"


def rendered(text: str, story: Story) -> str:
    for key, value in story.labels.items():
        text = text.replace(f"{{{{ $labels.{key} }}}}", value)
    text = text.replace("{{ $value }}", story.value)
    assert "{{" not in text, f"nobody fills in {text}"
    return text


def check(alert: alerts.Alert, story: Story) -> dict[str, Any]:
    """As promtool reads it: not before its time, then firing, and over once the state is good."""
    window = max((minutes(one) for one in re.findall(r"\[(\w+)\]", alert.expr)), default=0)
    waits = minutes(alert.for_)
    during, after = waits + window + 10, window + 10
    labels = {name: value for name, value in story.all_labels.items() if value} | alert.labels
    fires = {
        "exp_labels": labels,
        "exp_annotations": {name: rendered(text, story) for name, text in alert.annotations.items()},
    }

    def at(minute: int, *expected: Any) -> dict[str, Any]:
        return {"eval_time": f"{minute}m", "alertname": alert.alert, "exp_alerts": list(expected)}

    return {
        "interval": "1m",
        "input_series": [
            {"series": where(name), "values": samples(name, bad, good, during, after)}
            for name, (bad, good) in story.series.items()
        ],
        "alert_rule_test": [at(max(waits - 1, 0)), at(during, fires), at(during + 1 + after)],
    }


def where(name: str) -> str:
    bare, brace, rest = name.partition("{")
    return f'{bare}{{namespace="h"{"," + rest if brace else "}"}'


def first_time(alert: alerts.Alert, story: Story) -> dict[str, Any]:
    """The very first one fires and is over; neither a gap in Prometheus' own samples nor a restart fires it anew."""
    (window,) = {minutes(one) for one in re.findall(r"\[(\w+)\]", alert.expr)}
    checked = check(alert, story)
    gap, back = window + 30, 6 + 2 * window + 40
    values = f"0+0x5 1+0x{window + 9} _x{gap} 1+0x{window} 0+0x{window}"
    checked["input_series"] = [{"series": where(name), "values": values} for name in story.series]
    quiet, fires, over = checked["alert_rule_test"]
    ends = back + 2 * window + 2
    looks = [window + 10, *range(back - 2, ends, max(window // 15, 1))]
    checked["alert_rule_test"] = [quiet, fires | {"eval_time": "6m"}, *(over | {"eval_time": f"{at}m"} for at in looks)]
    return checked


def test_every_alert_has_its_story() -> None:
    assert {one.alert for found in ROOMS.values() for one in found} == set(STORIES)
    assert len(AT_ONCE) >= 4


@pytest.mark.parametrize("room", ROOMS)
def test_alerts_fire_and_resolve(room: str, tmp_path: Path) -> None:
    promtool = tool("promtool", "prometheus")
    stories = [check(one, STORIES[one.alert]) for one in ROOMS[room]]
    stories += [first_time(one, STORIES[one.alert]) for one in ROOMS[room] if one.alert in AT_ONCE]
    file = tmp_path / "stories.yaml"
    rules = str(ROOT / f"chart/alerts/{room}.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": stories}))
    for words in (["check", "rules", rules], ["test", "rules", str(file)]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_nodes_that_no_vcenter_could_check_are_no_alert(tmp_path: Path) -> None:
    """Where no vCenter is configured they stay unchecked for good, and nobody is woken for that."""
    (alert,) = (one for one in ROOMS["platform"] if one.alert == "HostlerPlatformUnchecked")
    story = check(alert, one('hostler_platform_condition{type="Upgradeable"}', -1, -1))
    for look in story["alert_rule_test"]:
        look["exp_alerts"] = []
    file = tmp_path / "stories.yaml"
    rules = str(ROOT / "chart/alerts/platform.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [story]}))
    words = [tool("promtool", "prometheus"), "test", "rules", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_normal_wait_in_maintenance_fires_nothing(tmp_path: Path) -> None:
    """Two days of waiting for the own host, a spare one, a turn, the ceiling or DRS."""
    series = [where(f'hostler_maintenance_blocked{{reason="{reason.value}"}}') for reason in NORMAL]
    series.append(where('hostler_maintenance_nodes{state="powered-off"}'))
    quiet = {
        "interval": "1m",
        "input_series": [{"series": one, "values": "1+0x2880"} for one in series],
        "alert_rule_test": [
            {"eval_time": "48h", "alertname": one.alert, "exp_alerts": []} for one in ROOMS["maintenance"]
        ],
    }
    file = tmp_path / "quiet.yaml"
    rules = str(ROOT / "chart/alerts/maintenance.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [quiet]}))
    words = [tool("promtool", "prometheus"), "test", "rules", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_understands_every_panel_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one.expr} for number, one in enumerate(PANELS)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    words = [tool("promtool", "prometheus"), "check", "rules", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(PANELS)} rules found" in done.stdout
