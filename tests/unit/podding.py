"""Pod templates for each field of Pod Security baseline: one that the level allows and one that it refuses."""

from __future__ import annotations

from typing import Any

from hostler.apis.pod_security import BASELINE, Control

Template = dict[str, Any]
# What the API server itself requires beside a field for an object to be valid.
BESIDE: dict[str, Template] = {
    "volumes[]": {"name": "v"},
    "sysctls[]": {"value": "1"},
    "containers[]": {"name": "c", "image": "i"},
    "initContainers[]": {"name": "i", "image": "i"},
    "ephemeralContainers[]": {"name": "e", "image": "i"},
    "httpGet": {"port": 80},
    "tcpSocket": {"port": 80},
}
REFUSED: dict[str, Any] = {
    "HostPath Volumes": {"path": "/"},
    "Capabilities": "SYS_ADMIN",
    "Host Probes and Lifecycle Hooks": "169.254.169.254",
    "AppArmor": "Unconfined",
    "SELinux": "spc_t",
    "/proc Mount Type": "Unmasked",
    "Seccomp": "Unconfined",
    "Sysctls": "kernel.msgmax",
}


def rows() -> list[tuple[Control, str]]:
    return [(control, field) for control in BASELINE for field in control.fields]


def refused_value(control: Control) -> Any:
    if control.keys:
        return "unconfined"
    return True if control.allowed == (False,) else REFUSED[control.name]


def template_with(control: Control, field: str, value: Any) -> Template:
    """A whole pod template with this field set, and else only what makes it valid."""
    template: Template = {"metadata": {}, "spec": {"containers": [dict(BESIDE["containers[]"])]}}
    at: Any = template
    *path, last = field.split(".")
    for part in path:
        at = _step(at, part)
    if control.keys:
        at[last] = {f"{control.keys}c": value}
    elif last.endswith("[]"):
        at[last.removesuffix("[]")] = [value]
    else:
        at[last] = value
    if value == "Localhost":  # such a profile has a name
        at["localhostProfile"] = "mine"
    if "initContainers" in field and ("Probe" in field or "lifecycle" in field):
        template["spec"]["initContainers"][0]["restartPolicy"] = "Always"  # only a sidecar has these
    return template


def _step(at: Any, part: str) -> Any:
    if part.endswith("[]"):
        return at.setdefault(part.removesuffix("[]"), [dict(BESIDE.get(part, {}))])[0]
    return at.setdefault(part, dict(BESIDE.get(part, {})))
