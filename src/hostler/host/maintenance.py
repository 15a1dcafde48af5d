"""What a maintenance writes on a Node, as far as others than its room read it: holds, the doctor.

Annotations and states are the seed's own words, so that its controller and ours can follow each other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SEED: Final = "vsphere-maintenance.boeye.net/"
STATE, HOST, MIGRATED_TO, SINCE = f"{SEED}state", f"{SEED}host", f"{SEED}migrated-to-host", f"{SEED}transition-time"
# The taint that lets Kubernetes take pods and volumes off a machine that is off.
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class State(StrEnum):
    DRAINING = "draining"
    POWERED_OFF = "powered-off"
    MIGRATED = "migrated"
