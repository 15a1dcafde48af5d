"""The next thing Baremetal Operator would write on one host. Pure: the host, its secret and a clock in, one write out.

Checked against recordings of the real operator; tests/unit/test_sandbox_hosts.py has the sequences in our own words.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from hostler.sandbox.hosts import status as st
from hostler.sandbox.hosts.model import (
    DETACHED,
    FINALIZER,
    INSPECT,
    PAUSED,
    REBOOT,
    STATUS,
    Fault,
    Json,
    Memory,
    Pace,
    Put,
    Secret,
    Wait,
    asked_fault,
    hardware_of,
    new_id,
)

IDLE = Wait()


@dataclass(slots=True)
class Look:
    """One look at one host. `next` says what is written now, if anything."""

    host: Json
    secret: Secret | None
    memory: Memory
    pace: Pace
    now: float
    fault: Fault = asked_fault

    @property
    def spec(self) -> Json:
        return dict(self.host["spec"])

    @property
    def status(self) -> Json:
        return dict(self.host.get("status") or {})

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.host["metadata"].get("annotations") or {})

    @property
    def state(self) -> str:
        return str(self.status["provisioning"]["state"])

    def next(self) -> Put | Wait:
        if PAUSED in self.annotations:
            return IDLE
        return self._beginning() or self._living()

    # -- before there is anything to walk

    def _beginning(self) -> Put | Wait | None:
        meta, deleting = self.host["metadata"], bool(self.host["metadata"].get("deletionTimestamp"))
        finalizers = meta.get("finalizers") or []
        if STATUS in self.annotations:
            if not self.status:
                return self._restore()
            return self._without_annotation(STATUS)
        if deleting and FINALIZER not in finalizers:
            return IDLE
        if FINALIZER not in finalizers:
            changed = copy.deepcopy(self.host)
            changed["metadata"]["finalizers"] = [*finalizers, FINALIZER]
            changed["spec"].setdefault("bmc", {"address": "", "credentialsName": ""})
            return Put(changed, status=False)
        if not self.status:
            return self._put(st.first(self.host, self.now))
        return None

    def _restore(self) -> Put | Wait:
        try:
            status = json.loads(self.annotations[STATUS])
        except ValueError:
            return self._without_annotation(STATUS)
        status.setdefault("hardware", hardware_of(self.host))
        self.memory.new_id = True
        return Put(st.with_status(self.host, status, self.now, judged=False), status=True)

    # -- the states

    def _living(self) -> Put | Wait:
        if self.host["metadata"].get("deletionTimestamp"):
            return self._deleting()
        if self.state == "unmanaged":
            return self._unmanaged()
        if self.status["operationalStatus"] == "detached" or (
            DETACHED in self.annotations and self.state in (*st.DONE, "available")
        ):
            return self._detached()
        return self._credentials() or self._states()[self.state]()

    def _states(self) -> dict[str, Callable[[], Put | Wait]]:
        return {
            "registering": self._registering,
            "inspecting": self._inspecting,
            "preparing": self._preparing,
            "available": self._available,
            "provisioning": self._provisioning,
            "provisioned": self._provisioned,
            "externally provisioned": self._provisioned,
            "deprovisioning": self._deprovisioning,
        }

    def _unmanaged(self) -> Put | Wait:
        bmc = self.spec.get("bmc") or {}
        if not (bmc.get("address") or bmc.get("credentialsName")):
            return IDLE
        status = self._copy()
        st.move(status, "registering", self.now)
        status["provisioning"]["bootMode"] = st.boot_mode(self.host)
        return self._put(status)

    def _credentials(self) -> Put | Wait | None:
        """A missing or useless secret stops everything; a changed one is taken over."""
        status, bmc = self.status, self.spec["bmc"]
        problem = ""
        if self.secret is None:
            problem = f"The BMC secret {self.host['metadata']['namespace']}/{bmc['credentialsName']} does not exist"
        elif not bmc.get("address"):
            problem = "The BMC address is missing"
        elif not self.secret.complete:
            problem = "The BMC secret has no user name or no password"
        if problem:
            return self._bad_credentials(problem)
        if self.memory.step == "credentials":
            self.memory.done()
        if self.state == "registering":
            return None
        current, changed = st.credentials(self.host, self.secret_version), self._copy()
        if self.memory.new_id:  # restored or attached again: registered anew, and proven only after that
            self.memory.new_id = False
            changed["provisioning"]["ID"] = new_id()
            if status["triedCredentials"] != current:
                changed["operationHistory"]["register"] = {"start": st.stamp(self.now), "end": None}
        elif status["triedCredentials"] != current:
            st.mend(changed)
            changed["goodCredentials"] = current
        elif status["goodCredentials"] != current:
            changed["goodCredentials"] = current
            changed["operationHistory"]["register"]["end"] = st.stamp(self.now)
        elif status.get("errorType") == "registration error":
            st.mend(changed)
        else:
            return None
        changed["triedCredentials"] = current
        return self._put(changed)

    def _bad_credentials(self, problem: str) -> Put | Wait:
        status = self._copy()
        said = status.get("errorMessage") == problem
        if self.secret is None:
            left = self.memory.takes("credentials", self.now, self.pace.secret_retry) if said else 0.0
            if left:
                return Wait(left)
            self.memory.done()
        elif said and status["errorCount"] >= 2:
            return IDLE  # only a change helps
        st.fail(status, "registering", problem)
        self.memory.takes("credentials", self.now, self.pace.secret_retry)
        return self._put(status, judged=False)

    @property
    def secret_version(self) -> str:
        return self.secret.version if self.secret else ""

    def _registering(self) -> Put | Wait:
        status, address = self._copy(), self.spec["bmc"]["address"]
        if "://" in address and not address.startswith(("redfish", "ipmi", "idrac", "ilo", "irmc", "libvirt")):
            return self._bad_address(status, address)
        tried = status["triedCredentials"].get("credentialsVersion")
        if status["operationalStatus"] != "OK" or tried != self.secret_version:
            waiting = self._retry_wait(f"{address} {self.secret_version}") if status.get("errorType") else 0.0
            if waiting:
                return Wait(waiting)
            self._take_over(address, anew=tried != self.secret_version)
            st.mend(status)
            status["provisioning"]["ID"] = status["provisioning"]["ID"] or new_id()
            status["triedCredentials"] = st.credentials(self.host, self.secret_version)
            return self._put(status)
        left = self.memory.takes("registering", self.now, self.pace.registering)
        if left:
            return Wait(left)
        if message := self.fault(self.host, "registering", self.memory.address or address):
            return self._failed(status, "registering", message, f"{address} {self.secret_version}")
        if "hardwareProfile" not in status:
            status["hardwareProfile"] = "unknown"
            status["provisioning"]["rootDeviceHints"] = self._hints()
            return self._put(status)
        status["goodCredentials"] = st.credentials(self.host, self.secret_version)
        inspects = self.annotations.get(INSPECT) != "disabled" and self.spec.get("inspectionMode") != "disabled"
        external = self.spec.get("externallyProvisioned")
        after = "externally provisioned" if external else "inspecting" if inspects else "preparing"
        self.memory.done()
        st.move(status, after, self.now)
        status["errorCount"] = 0
        return self._put(status)

    def _bad_address(self, status: Json, address: str) -> Put | Wait:
        if status.get("errorMessage", "").endswith(repr(address)) and status["errorCount"] >= 2:
            return IDLE
        st.fail(status, "registering", f"The BMC type is not known: {address!r}")
        status["triedCredentials"] = st.credentials(self.host, self.secret_version)
        return self._put(status)

    def _take_over(self, address: str, *, anew: bool) -> None:
        """A corrected path alone is not noticed, as in the release recorded: only another host, port or secret is."""
        known = self.memory.address
        if not known or anew or urlsplit(known).netloc != urlsplit(address).netloc:
            self.memory.address = address

    def _inspecting(self) -> Put | Wait:
        if self.annotations.get(INSPECT) not in (None, "disabled"):
            return self._without_annotation(INSPECT)
        status = self._copy()
        if problem := self._step(status, "inspecting", self.pace.inspecting):
            return problem
        status["hardware"] = hardware_of(self.host)
        st.move(status, "preparing", self.now)
        return self._put(status)

    def _preparing(self) -> Put | Wait:
        status = self._copy()
        if "architecture" not in self.spec and status.get("hardware"):
            changed = copy.deepcopy(self.host)
            changed["spec"]["architecture"] = "x86_64"
            return Put(changed, status=False)
        if problem := self._step(status, "preparing", self.pace.preparing):
            return problem
        st.move(status, "available", self.now)
        return self._put(status)

    def _available(self) -> Put | Wait:
        status = self._copy()
        if "rootDeviceHints" not in status["provisioning"]:
            status["provisioning"]["rootDeviceHints"] = self._hints()
            return self._put(status)
        if self.annotations.get(INSPECT) not in (None, "disabled"):
            st.move(status, "inspecting", self.now)
            return self._put(status)
        if self.spec.get("image") or self.spec.get("customDeploy"):
            if status["provisioningFailCount"] and self.spec.get("image") != status.get("lastAttemptedImage"):
                status["provisioningFailCount"] = 0
            st.move(status, "provisioning", self.now)
            return self._put(status)
        return self._powered(status)

    def _provisioning(self) -> Put | Wait:
        status = self._copy()
        if not (self.spec.get("image") or self.spec.get("customDeploy")):
            self.memory.done()
            st.move(status, "deprovisioning", self.now)
            return self._put(status)
        content = json.dumps([self.spec.get("image"), self.spec.get("customDeploy")])
        if status["operationalStatus"] == "error":
            waiting = self._retry_wait(content)
            if waiting:
                return Wait(waiting)
            status["provisioningFailCount"] += 1
            st.move(status, "deprovisioning", self.now)
            return self._put(status)
        left = self.memory.takes("provisioning", self.now, self.pace.provisioning)
        if left:
            return Wait(left)
        status["lastAttemptedImage"] = self.spec.get("image")
        if message := self.fault(self.host, "provisioning", self.memory.address):
            return self._failed(status, "provisioning", message, content)
        self.memory.done()
        self.memory.power = True
        st.move(status, "provisioned", self.now)
        status["provisioning"]["image"] = self.spec.get("image") or {"url": ""}
        if self.spec.get("customDeploy"):
            status["provisioning"]["customDeploy"] = self.spec["customDeploy"]
        status["provisioningFailCount"] = 0
        return self._put(status)

    def _provisioned(self) -> Put | Wait:
        status = self._copy()
        if self.state == "externally provisioned":
            if not self.spec.get("externallyProvisioned"):
                st.move(status, "provisioned", self.now)
                return self._put(status)
            return self._powered(status)
        has = status["provisioning"].get("image") or {"url": ""}
        wanted = self.spec.get("image") or {"url": ""}
        deployed = status["provisioning"].get("customDeploy")
        if (
            wanted.get("url") != has.get("url")
            or self.spec.get("customDeploy") != deployed
            or not (wanted.get("url") or deployed)
        ):
            st.move(status, "deprovisioning", self.now)
            return self._put(status)
        return self._powered(status)

    def _deprovisioning(self) -> Put | Wait:
        status = self._copy()
        if status["operationalStatus"] == "error":
            st.mend(status)
            return self._put(status)
        left = self.memory.takes("deprovisioning", self.now, self.pace.deprovisioning)
        if left:
            return Wait(left)
        self.memory.done()
        self.memory.power = False
        self._cleared(status, "available")
        return self._put(status)

    def _cleared(self, status: Json, after: str) -> None:
        status["provisioning"]["image"] = {"url": ""}
        status["provisioning"].pop("customDeploy", None)
        status["provisioning"].pop("rootDeviceHints", None)
        st.move(status, after, self.now)
        status["errorCount"] = 0

    # -- power, detaching, deleting

    def _powered(self, status: Json) -> Put | Wait:
        """Bring the machine's power to what is wanted; what the status says follows what is."""
        memory = self.memory
        if memory.power is None:
            memory.power = bool(status["poweredOn"])
        if status["poweredOn"] != memory.power and not memory.booting:
            status["poweredOn"] = memory.power
            return self._put(status)
        if not st.observed(self.host):
            return self._put(status)
        asked = [key for key in self.annotations if key == REBOOT or key.startswith(f"{REBOOT}/")]
        held = [key for key in asked if key != REBOOT]
        once = REBOOT in asked and (self.state != "available" or self._forced())
        if once and not memory.power:
            return self._without_annotation(REBOOT)
        wanted = bool(self.spec.get("online")) and not held and not once
        if wanted == memory.power:
            return IDLE
        left = memory.takes(f"power {wanted}", self.now, self.pace.power)
        if left:
            return Wait(left)
        memory.done()
        memory.power = wanted
        status["poweredOn"] = wanted
        return self._put(status)

    def _forced(self) -> bool:
        try:
            return bool(json.loads(self.annotations[REBOOT]).get("force"))
        except (ValueError, AttributeError):
            return False

    def _detached(self) -> Put | Wait:
        status = self._copy()
        if DETACHED in self.annotations:
            if status["operationalStatus"] != "detached":
                status["operationalStatus"] = "detached"
                return self._put(status)
            return IDLE if st.observed(self.host) else self._put(status)
        status["operationalStatus"] = "OK"
        self.memory.new_id = True
        return self._put(status)

    def _deleting(self) -> Put | Wait:
        status, state = self._copy(), self.state
        if state == "deleting":
            if status["operationalStatus"] == "detached":
                status["operationalStatus"] = "OK"
                return self._put(status)
            changed = copy.deepcopy(self.host)
            changed["metadata"]["finalizers"] = [
                one for one in changed["metadata"].get("finalizers") or [] if one != FINALIZER
            ]
            return Put(changed, status=False)
        if state in ("registering", "unmanaged") or status["operationalStatus"] == "detached":
            st.move(status, "deleting", self.now)
        elif state in ("provisioned", "provisioning"):
            self.memory.done()
            st.move(status, "deprovisioning", self.now)
        elif state == "deprovisioning":
            left = self.memory.takes("deprovisioning", self.now, self.pace.deprovisioning)
            if left:
                return Wait(left)
            self.memory.done()
            self.memory.power = False
            self._cleared(status, "powering off before delete")
        elif state == "powering off before delete":
            if "rootDeviceHints" not in status["provisioning"]:
                status["provisioning"]["rootDeviceHints"] = self._hints()
                return self._put(status)
            left = self.memory.takes("power off", self.now, self.pace.power) if status["poweredOn"] else 0.0
            if left:
                return Wait(left)
            status["poweredOn"] = False
            st.move(status, "deleting", self.now)
        else:
            st.move(status, "powering off before delete", self.now)
        return self._put(status)

    # -- small change

    def _step(self, status: Json, step: str, seconds: float) -> Put | Wait | None:
        """A step that takes time and may fail; None: it is over and went well."""
        if status["operationalStatus"] == "error":
            waiting = self._retry_wait("")
            if waiting:
                return Wait(waiting)
            st.mend(status)
            return self._put(status)
        left = self.memory.takes(step, self.now, seconds)
        if left:
            return Wait(left)
        if message := self.fault(self.host, step, self.memory.address):
            return self._failed(status, step, message, "")
        self.memory.done()
        return None

    def _failed(self, status: Json, step: str, message: str, content: str) -> Put:
        st.fail(status, step, message)
        self.memory.done()
        self.memory.failed_at, self.memory.failed_for = self.now, content
        return self._put(status)

    def _retry_wait(self, content: str) -> float:
        """Seconds until a failed step is tried again; what it failed for having changed, at once."""
        if self.memory.failed_at is None or self.memory.failed_for != content:
            return 0.0
        pause: float = 2 ** min(self.status["errorCount"], 10) * self.pace.error_minute * self.pace.jitter
        return max(0.0, self.memory.failed_at + pause - self.now)

    def _hints(self) -> Json:
        return dict(self.spec.get("rootDeviceHints") or {"deviceName": "/dev/sda"})

    def _copy(self) -> Json:
        return copy.deepcopy(self.status)

    def _put(self, status: Json, *, judged: bool = True) -> Put:
        return Put(st.with_status(self.host, status, self.now, judged=judged), status=True)

    def _without_annotation(self, name: str) -> Put:
        changed = copy.deepcopy(self.host)
        changed["metadata"]["annotations"].pop(name, None)
        return Put(changed, status=False)
