"""The settings that belong to no capability: where the cluster is, how we run in it, and the limits that bind all."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import (
    ADDRESS,
    LIMIT,
    OBJECT_NAME,
    PATH,
    SWITCH,
    TEXT,
    URL,
    Address,
    choice,
    names,
    rate,
    seconds,
    whole,
    whole_seconds,
)

CLUSTER, RUN, SAFETY, DRAIN, LEADER = "cluster", "run", "safety", "drain", "leader election"

# -- cluster
KUBECONFIG = Setting(
    "KUBECONFIG", PATH, "", "Kubeconfig file. Unset: ~/.kube/config, or the pod's own identity in a cluster.", CLUSTER
)
CONTEXT = Setting("HOSTLER_CONTEXT", TEXT, "", "Context of the kubeconfig. Unset: its current context.", CLUSTER)
NAMESPACE = Setting(
    "HOSTLER_OPERATOR_NAMESPACE",
    OBJECT_NAME,
    "hostler",
    "Namespace of the operator's lease and its own objects.",
    CLUSTER,
)
OPERATOR = Setting(
    "HOSTLER_OPERATOR", URL, "", "URL of a running operator. Unset: found through the API server by its lease.", CLUSTER
)

SERVICE = Setting(
    "HOSTLER_SERVICE",
    OBJECT_NAME,
    "hostler",
    "Service in front of the operator's pods, through which the CLI asks it. Unset: the one that the lease names.",
    CLUSTER,
)
CLUSTER_NAME = Setting(
    "HOSTLER_CLUSTER_NAME", OBJECT_NAME, "local", "What this cluster is called in the picture of all hosts.", CLUSTER
)

# -- run
CONFIG = Setting("HOSTLER_CONFIG", PATH, "", "YAML file with settings, one `key: value` per line.", RUN, in_file=False)
# Which names are allowed is filled in by the table of capabilities; until then none is.
ONLY = Setting("HOSTLER_ONLY", names(()), (), "Capabilities to run. Unset: maintenance, if a vCenter is set.", RUN)
DRY_RUN = Setting("DRY_RUN", SWITCH, False, "Say what would be done and write nothing anywhere.", RUN)
LOG_FORMAT = Setting(
    "HOSTLER_LOG_FORMAT", choice("auto", "json", "console"), "auto", "How logs look; auto: console on a terminal.", RUN
)
LOG_LEVEL = Setting(
    "HOSTLER_LOG_LEVEL", choice("debug", "info", "warning", "error"), "info", "The least important line to log.", RUN
)
# One setting for host and port: a Service named hostler-http would put HOSTLER_HTTP_PORT=tcp://... into every pod.
HTTP_ADDRESS = Setting(
    "HOSTLER_HTTP_ADDRESS", ADDRESS, Address("127.0.0.1", 8080), "Where /healthz, /metrics and /v1 are served.", RUN
)
METRICS_AUTHENTICATION = Setting(
    "HOSTLER_METRICS_AUTHENTICATION",
    SWITCH,
    True,
    "Serve /metrics only to callers that may read it. Off: to everyone who reaches the port.",
    RUN,
)
WEB_AUTH = Setting(
    "HOSTLER_WEB_AUTH",
    choice("off", "kubernetes"),
    "off",
    "kubernetes: the page is served to browsers too, for an Ingress; they log in with a bearer token.",
    RUN,
)
WEB_KEY_FILE = Setting(
    "HOSTLER_WEB_KEY_FILE", PATH, "", "File with the key of the page's sessions (a mounted Secret).", RUN
)
# With our prefix although the downward API is free in its choice: a CI server's own NODE_NAME must not reach us.
POD_NAME = Setting(
    "HOSTLER_POD_NAME",
    TEXT,
    "",
    "Name of the pod we run in (downward API), so that the CLI can reach it by proxy.",
    RUN,
)
NODE_NAME = Setting(
    "HOSTLER_NODE_NAME", TEXT, "", "Node we run on (downward API); the lease is handed over before it is drained.", RUN
)
RESYNC_SECONDS = Setting(
    "HOSTLER_RESYNC_SECONDS", seconds(10), 600.0, "How often everything is looked at even if nothing changed.", RUN
)
DEBUG = Setting("HOSTLER_DEBUG", SWITCH, False, "Show the traceback when Hostler itself has a bug.", RUN)

# -- safety
MAX_UNAVAILABLE = Setting(
    "MAX_UNAVAILABLE",
    LIMIT,
    "",
    "Never more nodes than this out of service by us at a time, over all causes. Fleet.spec.maxUnavailable wins.",
    SAFETY,
)
IGNORE_INCUMBENT = Setting(
    "HOSTLER_IGNORE_INCUMBENT",
    names(()),
    (),
    "Capabilities that write even though the controller they replace is still at work.",
    SAFETY,
)
WRITES_PER_SECOND = Setting(
    "HOSTLER_WRITES_PER_SECOND", rate(0.1, 1000), 50.0, "Writes to the API server per second, at most.", SAFETY
)
WRITE_BURST = Setting("HOSTLER_WRITE_BURST", whole(1, 10000), 100, "Writes that may go out at once.", SAFETY)
UNINITIALISED_GRACE_SECONDS = Setting(
    "HOSTLER_UNINITIALISED_GRACE_SECONDS",
    seconds(0),
    300.0,
    "How long a new node may wait for its cloud provider before it counts as having none.",
    SAFETY,
)

# -- drain
DRAIN_TIMEOUT_SECONDS = Setting(
    "DRAIN_TIMEOUT_SECONDS", seconds(1), 600.0, "The longest a drain may take, volumes included.", DRAIN
)
DRAIN_REFUSE_EMPTY_DIR = Setting(
    "HOSTLER_DRAIN_REFUSE_EMPTY_DIR", SWITCH, False, "Do not evict pods whose emptyDir data would be lost.", DRAIN
)
DRAIN_REFUSE_UNMANAGED = Setting(
    "HOSTLER_DRAIN_REFUSE_UNMANAGED", SWITCH, False, "Do not evict pods that no controller would make again.", DRAIN
)

# -- leader election
LEADER_ELECTION = Setting(
    "HOSTLER_LEADER_ELECTION", SWITCH, True, "Act only while holding the lease. Off: for one replica at most.", LEADER
)
LEASE_NAME = Setting("HOSTLER_LEASE_NAME", OBJECT_NAME, "hostler", "Name of the lease.", LEADER)
LEASE_DURATION_SECONDS = Setting(
    "HOSTLER_LEASE_DURATION_SECONDS",
    whole_seconds(2, 3600),
    15,
    "Others may take an unrenewed lease after this.",
    LEADER,
)
LEASE_RENEW_SECONDS = Setting(
    "HOSTLER_LEASE_RENEW_SECONDS", seconds(1, most=3600), 10.0, "Stop acting when not renewed for this long.", LEADER
)
LEASE_RETRY_SECONDS = Setting(
    "HOSTLER_LEASE_RETRY_SECONDS", seconds(0.1, most=3600), 2.0, "Time between two attempts to get or renew it.", LEADER
)

SETTINGS: tuple[AnySetting, ...] = (
    KUBECONFIG, CONTEXT, NAMESPACE, OPERATOR, SERVICE, CLUSTER_NAME,
    CONFIG, ONLY, DRY_RUN, LOG_FORMAT, LOG_LEVEL, HTTP_ADDRESS, METRICS_AUTHENTICATION, WEB_AUTH, WEB_KEY_FILE,
    POD_NAME, NODE_NAME, RESYNC_SECONDS, DEBUG,
    MAX_UNAVAILABLE, IGNORE_INCUMBENT, WRITES_PER_SECOND, WRITE_BURST, UNINITIALISED_GRACE_SECONDS,
    DRAIN_TIMEOUT_SECONDS, DRAIN_REFUSE_EMPTY_DIR, DRAIN_REFUSE_UNMANAGED,
    LEADER_ELECTION, LEASE_NAME, LEASE_DURATION_SECONDS, LEASE_RENEW_SECONDS, LEASE_RETRY_SECONDS,
)  # fmt: skip


def _lease_times(settings: Settings) -> str | None:
    """A leader must stop before another may start, and one slow answer must not cost the lease (`kube.election`)."""
    duration, renew, retry = LEASE_DURATION_SECONDS, LEASE_RENEW_SECONDS, LEASE_RETRY_SECONDS
    if settings[duration] < settings[renew] + 0.5:
        return (
            f"{renew.name} ({settings[renew]:g}, {settings.source(renew)}) must be at least half a second less than "
            f"{duration.name} ({settings[duration]}, {settings.source(duration)}): a leader must stop before it can "
            "be replaced."
        )
    if settings[renew] < 1.5 * settings[retry]:
        return (
            f"{retry.name} ({settings[retry]:g}, {settings.source(retry)}) must be at most two thirds of "
            f"{renew.name} ({settings[renew]:g}, {settings.source(renew)}): else one slow answer costs the lease."
        )
    return None


def _web_key(settings: Settings) -> str | None:
    """Every replica opens the sessions of every other one, so the key is not made by one of them."""
    if settings[WEB_AUTH] == "kubernetes" and not settings[WEB_KEY_FILE]:
        return f"{WEB_AUTH.name}=kubernetes needs {WEB_KEY_FILE.name}: the key of the page's sessions (docs/web.md)."
    return None


def kubeconfig_path(settings: Settings) -> str:
    """The path for `kube.config.load`: empty where the environment says it, which may name several files."""
    return "" if settings.source(KUBECONFIG).startswith("environment") else settings[KUBECONFIG]


RULES: tuple[Rule, ...] = (_lease_times, _web_key)
