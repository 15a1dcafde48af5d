"""The settings of metal."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import ADDRESS, LABEL_VALUE, OBJECT_NAMES, SWITCH, Address, choice, rate, seconds, whole

SECTION = "metal"

METAL_SELECTION = Setting(
    "HOSTLER_METAL_SELECTION",
    choice("random", "ordered", "spread", "least-recently-used"),
    "random",
    "Which of several hosts that suit a machine it gets.",
    SECTION,
)
METAL_STRICT_FAILURE_DOMAINS = Setting(
    "HOSTLER_METAL_STRICT_FAILURE_DOMAINS",
    SWITCH,
    False,
    "A machine waits for a host of its failure domain instead of taking one of another.",
    SECTION,
)
METAL_FAST_TRACK = Setting(
    "CAPM3_FAST_TRACK",
    SWITCH,
    False,
    "Leave a host on while its machine is deleted and its disks are cleaned.",
    SECTION,
)
METAL_WORKERS = Setting("HOSTLER_METAL_WORKERS", whole(1, 200), 20, "Machines looked at side by side.", SECTION)
METAL_WRITES_PER_SECOND = Setting(
    "HOSTLER_METAL_WRITES_PER_SECOND",
    rate(0.1, 5000),
    400.0,
    "Writes of metal per second, at most; it has a budget of its own, and a busy API server lowers it.",
    SECTION,
)
PREALLOCATION = Setting(
    "ENABLE_BMH_NAME_BASED_PREALLOCATION",
    SWITCH,
    False,
    "Name IP claims after the host instead of the machine's data, so that a host keeps its addresses.",
    SECTION,
)
METAL_NAMESPACES = Setting(
    "HOSTLER_METAL_NAMESPACES",
    OBJECT_NAMES,
    (),
    "The only namespaces that metal reads and needs rights in. Empty: all of them.",
    SECTION,
)
METAL_WATCH_FILTER = Setting(
    "HOSTLER_METAL_WATCH_FILTER",
    LABEL_VALUE,
    "",
    "Only objects whose label cluster.x-k8s.io/watch-filter has this value are looked after. Empty: all of them.",
    SECTION,
)
METAL_WEBHOOKS = Setting(
    "HOSTLER_METAL_WEBHOOKS",
    SWITCH,
    False,
    "Serve the webhooks of the Metal3 kinds: defaults, validation and conversion between v1beta1 and v1beta2.",
    SECTION,
)
# The port is `webhook_objects.PORT`, which would bring msgspec along: every command reads this table.
METAL_WEBHOOKS_ADDRESS = Setting(
    "HOSTLER_METAL_WEBHOOKS_ADDRESS", ADDRESS, Address("127.0.0.1", 9443), "Where the webhooks are served.", SECTION
)
METAL_WEBHOOKS_SETTLE_SECONDS = Setting(
    "HOSTLER_METAL_WEBHOOKS_SETTLE_SECONDS",
    seconds(1),
    60.0,
    "How long every configuration trusts a new certificate before it is used; API servers read it meanwhile.",
    SECTION,
)

SETTINGS: tuple[AnySetting, ...] = (
    METAL_SELECTION, METAL_STRICT_FAILURE_DOMAINS, METAL_FAST_TRACK, METAL_WORKERS, METAL_WRITES_PER_SECOND,
    PREALLOCATION, METAL_NAMESPACES, METAL_WATCH_FILTER, METAL_WEBHOOKS, METAL_WEBHOOKS_ADDRESS,
    METAL_WEBHOOKS_SETTLE_SECONDS,
)  # fmt: skip
RULES: tuple[Rule, ...] = ()
# The flags that Cluster API wants of each provider's manager, for `hostler provider`.
PROVIDER_FLAGS: Mapping[str, AnySetting] = {"--namespace": METAL_NAMESPACES, "--watch-filter": METAL_WATCH_FILTER}
