"""The one table of settings. A room adds its own here: one import, one line in each tuple."""

from __future__ import annotations

from hostler.settings import foundation, ingress, join, maintenance, metal, platform, reclaim
from hostler.settings.model import AnySetting, Rule

SETTINGS: tuple[AnySetting, ...] = (
    *foundation.SETTINGS,
    *maintenance.SETTINGS,
    *ingress.SETTINGS,
    *metal.SETTINGS,
    *platform.SETTINGS,
    *join.SETTINGS,
    *reclaim.SETTINGS,
)
RULES: tuple[Rule, ...] = (
    *foundation.RULES,
    *maintenance.RULES,
    *ingress.RULES,
    *metal.RULES,
    *platform.RULES,
    *join.RULES,
    *reclaim.RULES,
)
# What the chart and `hostler manifests` set, from values of their own or from the pod: where it runs, how it logs in.
BY_INSTALLATION: frozenset[AnySetting] = frozenset({
    foundation.KUBECONFIG, foundation.CONTEXT, foundation.NAMESPACE, foundation.OPERATOR, foundation.SERVICE,
    foundation.CONFIG, foundation.ONLY, foundation.DRY_RUN, foundation.LOG_FORMAT, foundation.LOG_LEVEL,
    foundation.HTTP_ADDRESS, foundation.METRICS_AUTHENTICATION, foundation.POD_NAME, foundation.NODE_NAME,
    maintenance.VCENTER_HOST, maintenance.VCENTER_USER,
    maintenance.VCENTER_PASSWORD, maintenance.VCENTER_USER_FILE, maintenance.VCENTER_PASSWORD_FILE,
    maintenance.VCENTER_CA_BUNDLE, maintenance.VCENTER_TLS_VERIFY, maintenance.VCENTER_CERTIFICATE_SHA256,
    maintenance.VCENTERS_FILE, reclaim.HUB_URL, reclaim.HUB_PLAIN_HTTP, reclaim.HUB_CA, reclaim.HUB_ADDRESS,
    reclaim.HUB_CERTIFICATE, reclaim.HUB_KEY,
})  # fmt: skip
# The rest is told to an operator in a cluster by its ConfigMap.
TOLD: tuple[AnySetting, ...] = tuple(one for one in SETTINGS if one not in BY_INSTALLATION)
