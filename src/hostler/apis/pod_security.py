"""What a pod template must keep to: level `baseline` of the Pod Security Standards, without its rule for host ports.

One table, after the checks of k8s.io/pod-security-admission (Kubernetes 1.37). It makes the schema of such a template
in our CRD, with a CEL rule per field, and the operator's own check, which does not rely on the CRD in the cluster. A
test asks a real API server for its verdict on every field. Two differences from that level: `hostNetwork` and
`hostPort` are allowed, because a router needs them; `hostUsers: false` does not relax `procMount`, as Kubernetes 1.35
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
Value = bool | str
# CEL needs a bound for each list and text it looks into; the sum of what it may cost is limited by the API server.
MOST_CONTAINERS, MOST_ENTRIES, MOST_TEXT = 16, 64, 253
_CONTAINERS = ("spec.containers[]", "spec.initContainers[]", "spec.ephemeralContainers[]")
_MOST = dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), MOST_CONTAINERS)
_SHAPE = "PodTemplateSpec"
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Control:
    """One control of the standard. A field may always be unset; `[]` stands for each entry of a list.

    `allowed`: its values; none: the field must be unset. `prefix`: values that begin like this are allowed too.
    `keys`: the field is a map, and this is about its entries whose keys begin like this.
    """

    name: str
    fields: tuple[str, ...]
    allowed: tuple[Value, ...] = ()
    prefix: str = ""
    keys: str = ""

    @property
    def wanted(self) -> str:
        if not self.allowed:
            return "must be unset"
        if self.allowed == (False,):
            return "must be unset or false"
        values = [str(one) or '""' for one in self.allowed]
        return f"must be unset or one of {', '.join([*values, *([f'{self.prefix}*'] if self.prefix else [])])}"

    def allows(self, value: object) -> bool:
        if any(type(value) is type(one) and value == one for one in self.allowed):
            return True
        return bool(self.prefix) and isinstance(value, str) and value.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Violation:
    """One field of a template that the standard does not allow."""

    field: str
    control: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.field} {self.wanted} ({self.control})"


def _on_containers(*fields: str) -> tuple[str, ...]:
    return tuple(f"{one}.{field}" for field in fields for one in _CONTAINERS)


def _on_pod_and_containers(*fields: str) -> tuple[str, ...]:
    return (*(f"spec.{field}" for field in fields), *_on_containers(*fields))


_HANDLERS = [
    f"{probe}Probe.{how}.host" for probe in ("liveness", "readiness", "startup") for how in ("httpGet", "tcpSocket")
]
_HOOKS = [f"lifecycle.{hook}.{how}.host" for hook in ("postStart", "preStop") for how in ("httpGet", "tcpSocket")]

BASELINE: tuple[Control, ...] = (
    Control("HostProcess", _on_pod_and_containers("securityContext.windowsOptions.hostProcess"), (False,)),
    Control("Host Namespaces", ("spec.hostPID", "spec.hostIPC"), (False,)),
    Control("Privileged Containers", _on_containers("securityContext.privileged"), (False,)),
    Control(
        "Capabilities", _on_containers("securityContext.capabilities.add[]"),
        ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
         "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
    Control("HostPath Volumes", ("spec.volumes[].hostPath",)),
    Control("Host Probes and Lifecycle Hooks", _on_containers(*_HANDLERS, *_HOOKS), ("",)),
    Control(
        "AppArmor", _on_pod_and_containers("securityContext.appArmorProfile.type"), ("RuntimeDefault", "Localhost")
    ),
    Control("AppArmor", ("metadata.annotations",), ("", "runtime/default"), "localhost/", APPARMOR_ANNOTATION),
    Control(
        "SELinux", _on_pod_and_containers("securityContext.seLinuxOptions.type"),
        ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
    ),
    Control(
        "SELinux", _on_pod_and_containers("securityContext.seLinuxOptions.user", "securityContext.seLinuxOptions.role"),
        ("",),
    ),
    Control("/proc Mount Type", _on_containers("securityContext.procMount"), ("Default",)),
    Control(
        "Seccomp", _on_pod_and_containers("securityContext.seccompProfile.type"), ("RuntimeDefault", "Localhost")
    ),
    Control(
        "Sysctls", ("spec.securityContext.sysctls[].name",),
        ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
         "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
         "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
         "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
         "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"),
    ),
)  # fmt: skip


# -- the operator's check


def find_violations(template: object) -> tuple[Violation, ...]:
    """Every field of a pod template that `baseline` does not allow, by its name; fields of a wrong shape too."""
    found = [
        violation
        for control in BASELINE
        for field in control.fields
        for violation in _violations(control, template, field.split("."), "")
    ]
    return tuple(dict.fromkeys(found))


def _violations(control: Control, value: object, parts: list[str], at: str) -> Iterator[Violation]:
    if value is None:
        return
    if not parts:
        yield from _value_violations(control, value, at)
        return
    if not isinstance(value, Mapping):
        yield Violation(at or "the template", _SHAPE, "must be a mapping")
        return
    name, listed = parts[0].removesuffix("[]"), parts[0].endswith("[]")
    there, where = value.get(name), f"{at}.{name}" if at else name
    if not listed:
        yield from _violations(control, there, parts[1:], where)
    elif isinstance(there, list | tuple):
        for number, entry in enumerate(there):
            yield from _violations(control, entry, parts[1:], f"{where}[{number}]")
    elif there is not None:
        yield Violation(where, _SHAPE, "must be a list")


def _value_violations(control: Control, value: object, at: str) -> Iterator[Violation]:
    if not control.keys:
        if not control.allows(value):
            yield Violation(at, control.name, control.wanted)
    elif not isinstance(value, Mapping):
        yield Violation(at, _SHAPE, "must be a mapping")
    else:
        for key, entry in value.items():
            if str(key).startswith(control.keys) and not control.allows(entry):
                yield Violation(f"{at}[{key}]", control.name, control.wanted)


# -- the schema in the CRD


def template_schema() -> Schema:
    """The schema of a pod template: each field of the table with its CEL rule, every other field as it is written."""
    schema = _open()
    for control in BASELINE:
        for field in control.fields:
            _add(schema, control, field.split("."))
    return schema


def _open() -> Schema:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {}}


def _add(schema: Schema, control: Control, parts: list[str]) -> None:
    name, listed = parts[0].removesuffix("[]"), parts[0].endswith("[]")
    inner = _leaf(control) if len(parts) == 1 else _open()
    if listed:
        made = {"type": "array", "maxItems": _MOST.get(name, MOST_ENTRIES), "items": inner}
        inner = schema["properties"].setdefault(name, made)["items"]
    else:
        inner = schema["properties"].setdefault(name, inner)
    if len(parts) > 1:
        _add(inner, control, parts[1:])
    elif not control.allowed:
        # The rule is about its being there, so its holder has it.
        # The field is named by the message: API servers before 1.28 refuse a rule with fieldPath.
        rule = _rule(control, f"!has(self.{name})", f"{name} ")
        schema.setdefault("x-kubernetes-validations", []).append(rule)


def _leaf(control: Control) -> Schema:
    text = {"type": "string", "maxLength": MOST_TEXT}
    if not control.allowed:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if control.keys:
        cel = f"self.all(key, !key.startsWith('{control.keys}') || {_allows(control, 'self[key]')})"
        shape: Schema = {"type": "object", "maxProperties": MOST_ENTRIES, "additionalProperties": {"type": "string"}}
        return {**shape, "x-kubernetes-validations": [_rule(control, cel)]}
    kind = {"type": "boolean"} if control.allowed == (False,) else text
    return {**kind, "x-kubernetes-validations": [_rule(control, _allows(control, "self"))]}


def _allows(control: Control, value: str) -> str:
    if control.allowed == (False,):
        return f"{value} == false"
    values = ", ".join(f"'{one}'" for one in control.allowed)
    begins = f" || {value}.startsWith('{control.prefix}')" if control.prefix else ""
    return f"({value} in [{values}]{begins})"


def _rule(control: Control, cel: str, field: str = "") -> Schema:
    return {"rule": cel, "message": f"Pod Security baseline, {control.name}: {field}{control.wanted}"}
