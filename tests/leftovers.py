"""What each capability leaves in a cluster when it is uninstalled in the middle, as the code itself names it."""

from __future__ import annotations

from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.metal.names import PAUSED, REMEDIATION_POWER_OFF
from hostler.platform import admission_policy, conditions
from hostler.reclaim.agent_manifests import NAMESPACE_NAME
from hostler.reclaim.facts import FINALIZER
from hostler.reclaim.hub import keyring

LEFT_BEHIND = {
    "maintenance": (OUT_OF_SERVICE,),
    "platform": (
        conditions.OPERATOR_NAME,
        f"hostler.dev/capability={admission_policy.LABELS['hostler.dev/capability']}",
        "Unmanaged",
    ),
    "metal": (REMEDIATION_POWER_OFF, PAUSED, OUT_OF_SERVICE),
    "reclaim": (keyring.NAME, FINALIZER, NAMESPACE_NAME),
}
