"""A host's power, being detached, and being deleted: what the operator would write next."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING

from hostler.sandbox.hosts import status as st
from hostler.sandbox.hosts.model import DETACHED, FINALIZER, IDLE, REBOOT, Json, Put, Wait

if TYPE_CHECKING:
    from hostler.sandbox.hosts.walk import Look


def powered(look: Look, status: Json) -> Put | Wait:
    """Bring the machine's power to what is wanted; what the status says follows what is."""
    memory = look.memory
    if memory.power is None:
        memory.power = bool(status["poweredOn"])
    if status["poweredOn"] != memory.power and not memory.booting:
        status["poweredOn"] = memory.power
        return look.put(status)
    if not st.observed(look.host):
        return look.put(status)
    asked = [key for key in look.annotations if key == REBOOT or key.startswith(f"{REBOOT}/")]
    held = [key for key in asked if key != REBOOT]
    once = REBOOT in asked and (look.state != "available" or _forced(look))
    if once and not memory.power:
        return look.without_annotation(REBOOT)
    wanted = bool(look.spec.get("online")) and not held and not once
    if wanted == memory.power:
        return IDLE
    left = memory.takes(f"power {wanted}", look.now, look.pace.power)
    if left:
        return Wait(left)
    memory.done()
    memory.power = wanted
    status["poweredOn"] = wanted
    return look.put(status)


def _forced(look: Look) -> bool:
    try:
        return bool(json.loads(look.annotations[REBOOT]).get("force"))
    except (ValueError, AttributeError):
        return False


def detached(look: Look) -> Put | Wait:
    status = look.copy()
    if DETACHED in look.annotations:
        if status["operationalStatus"] != "detached":
            status["operationalStatus"] = "detached"
            return look.put(status)
        return IDLE if st.observed(look.host) else look.put(status)
    status["operationalStatus"] = "OK"
    look.memory.new_id = True
    return look.put(status)


def deleting(look: Look) -> Put | Wait:
    status, state = look.copy(), look.state
    if state == "deleting":
        if status["operationalStatus"] == "detached":
            status["operationalStatus"] = "OK"
            return look.put(status)
        changed = copy.deepcopy(look.host)
        changed["metadata"]["finalizers"] = [
            one for one in changed["metadata"].get("finalizers") or [] if one != FINALIZER
        ]
        return Put(changed, status=False)
    if state in ("registering", "unmanaged") or status["operationalStatus"] == "detached":
        st.move(status, "deleting", look.now)
    elif state in ("provisioned", "provisioning"):
        look.memory.done()
        st.move(status, "deprovisioning", look.now)
    elif state == "deprovisioning":
        left = look.memory.takes("deprovisioning", look.now, look.pace.deprovisioning)
        if left:
            return Wait(left)
        look.memory.done()
        look.memory.power = False
        look.cleared(status, "powering off before delete")
    elif state == "powering off before delete":
        if "rootDeviceHints" not in status["provisioning"]:
            status["provisioning"]["rootDeviceHints"] = look.hints()
            return look.put(status)
        left = look.memory.takes("power off", look.now, look.pace.power) if status["poweredOn"] else 0.0
        if left:
            return Wait(left)
        status["poweredOn"] = False
        st.move(status, "deleting", look.now)
    else:
        st.move(status, "powering off before delete", look.now)
    return look.put(status)
