"""A host's BMC: its secret, its address, and being registered with them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hostler.sandbox.hosts import status as st
from hostler.sandbox.hosts.model import IDLE, INSPECT, Json, Put, Wait, new_id

if TYPE_CHECKING:
    from hostler.sandbox.hosts.walk import Look


def credentials(look: Look) -> Put | Wait | None:
    """A missing or useless secret stops everything; a changed one is taken over."""
    status, bmc = look.status, look.spec["bmc"]
    problem = ""
    if look.secret is None:
        problem = f"The BMC secret {look.host['metadata']['namespace']}/{bmc['credentialsName']} does not exist"
    elif not bmc.get("address"):
        problem = "The BMC address is missing"
    elif not look.secret.complete:
        problem = "The BMC secret has no user name or no password"
    if problem:
        return _bad_credentials(look, problem)
    if look.memory.step == "credentials":
        look.memory.done()
    if look.state == "registering":
        return None
    current, changed = st.credentials(look.host, secret_version(look)), look.copy()
    if look.memory.new_id:  # restored or attached again: registered anew, and proven only after that
        look.memory.new_id = False
        changed["provisioning"]["ID"] = new_id()
        if status["triedCredentials"] != current:
            changed["operationHistory"]["register"] = {"start": st.stamp(look.now), "end": None}
    elif status["triedCredentials"] != current:
        st.mend(changed)
        changed["goodCredentials"] = current
    elif status["goodCredentials"] != current:
        changed["goodCredentials"] = current
        changed["operationHistory"]["register"]["end"] = st.stamp(look.now)
    elif status.get("errorType") == "registration error":
        st.mend(changed)
    else:
        return None
    changed["triedCredentials"] = current
    return look.put(changed)


def _bad_credentials(look: Look, problem: str) -> Put | Wait:
    status = look.copy()
    said = status.get("errorMessage") == problem
    if look.secret is None:
        left = look.memory.takes("credentials", look.now, look.pace.secret_retry) if said else 0.0
        if left:
            return Wait(left)
        look.memory.done()
    elif said and status["errorCount"] >= 2:
        return IDLE  # only a change helps
    st.fail(status, "registering", problem)
    look.memory.takes("credentials", look.now, look.pace.secret_retry)
    return look.put(status, judged=False)


def secret_version(look: Look) -> str:
    return look.secret.version if look.secret else ""


def registering(look: Look) -> Put | Wait:
    status, address = look.copy(), look.spec["bmc"]["address"]
    if "://" in address and not address.startswith(("redfish", "ipmi", "idrac", "ilo", "irmc", "libvirt")):
        return _bad_address(look, status, address)
    tried = status["triedCredentials"].get("credentialsVersion")
    if status["operationalStatus"] != "OK" or tried != secret_version(look):
        waiting = look.retry_wait(f"{address} {secret_version(look)}") if status.get("errorType") else 0.0
        if waiting:
            return Wait(waiting)
        _take_over(look, address, anew=tried != secret_version(look))
        st.mend(status)
        status["provisioning"]["ID"] = status["provisioning"]["ID"] or new_id()
        status["triedCredentials"] = st.credentials(look.host, secret_version(look))
        return look.put(status)
    left = look.memory.takes("registering", look.now, look.pace.registering)
    if left:
        return Wait(left)
    if message := look.fault(look.host, "registering", look.memory.address or address):
        return look.failed(status, "registering", message, f"{address} {secret_version(look)}")
    if "hardwareProfile" not in status:
        status["hardwareProfile"] = "unknown"
        status["provisioning"]["rootDeviceHints"] = look.hints()
        return look.put(status)
    status["goodCredentials"] = st.credentials(look.host, secret_version(look))
    inspects = look.annotations.get(INSPECT) != "disabled" and look.spec.get("inspectionMode") != "disabled"
    external = look.spec.get("externallyProvisioned")
    after = "externally provisioned" if external else "inspecting" if inspects else "preparing"
    look.memory.done()
    st.move(status, after, look.now)
    status["errorCount"] = 0
    return look.put(status)


def _bad_address(look: Look, status: Json, address: str) -> Put | Wait:
    if status.get("errorMessage", "").endswith(repr(address)) and status["errorCount"] >= 2:
        return IDLE
    st.fail(status, "registering", f"The BMC type is not known: {address!r}")
    status["triedCredentials"] = st.credentials(look.host, secret_version(look))
    return look.put(status)


def _take_over(look: Look, address: str, *, anew: bool) -> None:
    """A corrected path alone is not noticed, as in the release recorded: only another host, port or secret is."""
    known = look.memory.address
    if not known or anew or urlsplit(known).netloc != urlsplit(address).netloc:
        look.memory.address = address
