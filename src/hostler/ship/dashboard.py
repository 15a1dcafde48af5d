"""A Grafana dashboard made from a table of panels: what somebody on call wants to see first, from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 8, 7  # three panels in a row of 24


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    expr: str
    legend: str = ""
    unit: str = "short"
    kind: str = "timeseries"


PANELS = (
    Panel("Replicas that lead (must be 1)", "sum(hostler_leader)", kind="stat"),
    Panel("Stop button", "max(hostler_paused)", kind="stat"),
    Panel("What may write", "max by (capability) (hostler_capability_writes)", "{{capability}}", kind="stat"),
    Panel("Nodes", "max by (what) (hostler_nodes)", "{{what}}"),
    Panel("Nodes in maintenance", "max by (state) (hostler_maintenance_nodes)", "{{state}}"),
    Panel("Why maintenances wait", "max by (reason) (hostler_maintenance_blocked) > 0", "{{reason}}"),
    Panel("vCenters followed", "max by (vcenter) (hostler_vcenter_connected)", "{{vcenter}}", kind="stat"),
    Panel("vCenter silence", "max by (vcenter) (hostler_vcenter_silence_seconds)", "{{vcenter}}", "s"),
    Panel("Machines without a host", "max(hostler_metal_waiting)", "machines"),
    Panel("Steps of remediations", "sum by (step) (increase(hostler_metal_remediation_steps_total[1h]))", "{{step}}"),
    Panel("Hosts in reclaim", "max by (state) (hostler_reclaim_hosts)", "{{state}}"),
    Panel("Requests of hosts", "sum by (call, status) (rate(hostler_hub_requests_total[5m]))", "{{call}} {{status}}",
          "ops"),
    Panel("Certificate requests", "max by (act) (hostler_join_requests)", "{{act}}"),
    Panel("Pods without their driver", "max(hostler_platform_stranded_pods)", "pods"),
    Panel("Routers", "max by (controller, what) (hostler_ingress_routers)", "{{controller}} {{what}}"),
    Panel("Writes", "sum by (kind, result) (rate(hostler_writes_total[5m]))", "{{kind}} {{result}}", "ops"),
    Panel("Looks that failed", 'sum by (controller) (rate(hostler_reconciles_total{result=~"error|bug"}[5m]))',
          "{{controller}}", "ops"),
    Panel("Watches begun again", "sum by (kind) (increase(hostler_watch_restarts_total[15m]))", "{{kind}}"),
    Panel("Keys waiting", "max by (queue) (hostler_queue_depth)", "{{queue}}"),
    Panel("Worst lag of the loop", "max by (pod) (hostler_loop_lag_worst_seconds)", "{{pod}}", "s"),
    Panel("Memory", "max by (pod) (process_resident_memory_bytes and on (pod, namespace) hostler_leader)", "{{pod}}",
          "bytes"),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    picker = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "title": "Hostler",
        "uid": "hostler",
        "tags": ["hostler"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [picker]},
        "panels": [_panel(number, panel, source) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    row, column = divmod(number, 24 // WIDTH)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expr, "legendFormat": panel.legend}],
    }
