"""Which settings an operator in a cluster reads from its ConfigMap: all that the installation does not set itself."""

from __future__ import annotations

from hostler.capabilities import SETTINGS
from hostler.settings.model import AnySetting

# The chart and `hostler manifests` set these from values of their own or from the pod: where it runs, how it logs in.
SET_BY_INSTALLATION = frozenset({
    "KUBECONFIG", "HOSTLER_CONTEXT", "HOSTLER_OPERATOR_NAMESPACE", "HOSTLER_OPERATOR", "HOSTLER_SERVICE",
    "HOSTLER_CONFIG", "HOSTLER_ONLY", "DRY_RUN", "HOSTLER_LOG_FORMAT", "HOSTLER_LOG_LEVEL", "HOSTLER_HTTP_ADDRESS",
    "HOSTLER_METRICS_AUTHENTICATION", "HOSTLER_WEB_AUTH", "HOSTLER_WEB_KEY_FILE", "HOSTLER_POD_NAME",
    "HOSTLER_NODE_NAME",
    "VCENTER_HOST", "VCENTER_USER", "VCENTER_PASSWORD", "VCENTER_USER_FILE", "VCENTER_PASSWORD_FILE",
    "VCENTER_CA_BUNDLE", "VCENTER_TLS_VERIFY", "VCENTER_CERTIFICATE_SHA256", "VCENTERS_FILE",
    "HUB_URL", "HOSTLER_HUB_PLAIN_HTTP", "HUB_CA", "HOSTLER_HUB_ADDRESS", "HOSTLER_HUB_CERTIFICATE", "HOSTLER_HUB_KEY",
    "HOSTLER_METAL_WEBHOOKS_ADDRESS",
    "HOSTLER_HISTORY_URL",
})  # fmt: skip
IN_CONFIG_MAP: tuple[AnySetting, ...] = tuple(
    setting for setting in SETTINGS if setting.name not in SET_BY_INSTALLATION
)
