"""The status of a simulated host: its first form, its conditions by state, and how an error is put in and taken out."""

from __future__ import annotations

import copy
import time
from typing import Any

from hostler.sandbox.hosts.model import ERROR_TYPES, Json

MOVING = (
    "inspecting", "preparing", "provisioning", "deprovisioning", "powering off before delete", "deleting",
)  # fmt: skip
DONE = ("provisioned", "externally provisioned")
WORDS = {"powering off before delete": "PoweringOffBeforeDelete"}


def stamp(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def first(host: Json, now: float) -> Json:
    """The first status of a host: registering, or unmanaged where nobody said how to reach its BMC."""
    bmc = host["spec"].get("bmc") or {}
    managed = bool(bmc.get("address") or bmc.get("credentialsName"))
    provisioning: Json = {"ID": "", "image": {"url": ""}, "state": "registering" if managed else "unmanaged"}
    if managed:
        provisioning["bootMode"] = boot_mode(host)
    history: Json = {name: {"start": None, "end": None} for name in ("register", "inspect", "provision", "deprovision")}
    if managed:
        history["register"]["start"] = stamp(now)
    return {
        "errorCount": 0, "errorMessage": "", "goodCredentials": {}, "triedCredentials": {},
        "operationHistory": history, "operationalStatus": "" if managed else "discovered", "poweredOn": False,
        "provisioning": provisioning, "provisioningFailCount": 0,
    }  # fmt: skip


def boot_mode(host: Json) -> str:
    return str(host["spec"].get("bootMode") or "UEFI")


def with_status(host: Json, status: Json, now: float, *, judged: bool = True) -> Json:
    """The host with this status; its conditions follow from it unless `judged` is off, as for missing credentials."""
    changed = copy.copy(host)
    status["lastUpdated"] = stamp(now)
    if judged:
        generation = host["metadata"].get("generation", 1)
        status["conditions"] = conditions(status, generation, host.get("status", {}).get("conditions", []), now)
    changed["status"] = status
    return changed


def conditions(status: Json, generation: int, before: list[Json], now: float) -> list[Json]:
    state, operational = status["provisioning"]["state"], status["operationalStatus"]
    known = {one["type"]: one for one in before}
    found = []
    for type, (value, reason) in _judge(state, operational, status.get("errorType", "")).items():
        old = known.get(type)
        since = old["lastTransitionTime"] if old and old["status"] == value else stamp(now)
        seen = generation
        if type == "Healthy":
            seen = old["observedGeneration"] if old else generation
        found.append(
            {"type": type, "status": value, "reason": reason, "message": "", "observedGeneration": seen,
             "lastTransitionTime": since}
        )  # fmt: skip
    return found


def observed(host: Json) -> bool:
    """Whether the conditions have seen the newest generation."""
    generation = host["metadata"].get("generation", 1)
    return all(
        one["observedGeneration"] >= generation for one in host["status"]["conditions"] if one["type"] != "Healthy"
    )


def _judge(state: str, operational: str, error: str) -> dict[str, tuple[str, str]]:
    failed = operational == "error"
    detached = operational == "detached"
    done = state in DONE
    word = WORDS.get(state, state.capitalize())
    ready = ("True", "Provisioned") if done else ("False", "NotProvisioned")
    if failed and not (state in ("available", "provisioned") and error == "registration error"):
        ready = ("False", "Error")
    if detached:
        ready = ("False", "Detached")
    manageable = ("True", "Manageable")
    if state == "unmanaged":
        manageable = ("False", "NotManaged")
    elif state == "registering":
        manageable = ("False", "RegistrationFailed" if failed else "Registering")
    progressing = ("False", "NotProgressing")
    if state == "registering" or state in MOVING:
        progressing = ("True", word)
    if detached:
        progressing = ("False", "Detached")
    return {
        "Ready": ready,
        "AvailableForProvisioning": ("True", "Available") if state == "available" else ("False", "NotAvailable"),
        "Healthy": ("Unknown", "Unknown"),
        "Manageable": manageable,
        "Progressing": progressing,
        "Provisioned": ("True", "Provisioned") if done else ("False", "NotProvisioned"),
    }


def fail(status: Json, step: str, message: str, *, error: str = "") -> None:
    status["errorCount"] = status.get("errorCount", 0) + 1
    status["errorType"] = error or ERROR_TYPES[step]
    status["errorMessage"] = message
    status["operationalStatus"] = "error"


def mend(status: Json) -> None:
    """The error goes; how often it came stays until the next state."""
    status.pop("errorType", None)
    status["errorMessage"] = ""
    status["operationalStatus"] = "OK"


def move(status: Json, state: str, now: float) -> None:
    """Into another state, with what the history says about it."""
    history = status["operationHistory"]
    left = status["provisioning"]["state"]
    ends = {"registering": "register", "inspecting": "inspect", "provisioning": "provision"}
    ends["deprovisioning"] = "deprovision"
    if left in ends and left != state:
        history[ends[left]]["end"] = stamp(now)
    begins = {
        "registering": "register",
        "inspecting": "inspect",
        "provisioning": "provision",
        "deprovisioning": "deprovision",
    }
    if state in begins:
        history[begins[state]] = {"start": stamp(now), "end": None}
    status["provisioning"]["state"] = state
    if status.get("operationalStatus") != "error":
        status["errorCount"] = 0


def credentials(host: Json, version: str) -> dict[str, Any]:
    name = host["spec"]["bmc"]["credentialsName"]
    return {"credentials": {"name": name, "namespace": host["metadata"]["namespace"]}, "credentialsVersion": version}
