"""The next thing Baremetal Operator would write on one host. Pure: the host, its secret and a clock in, one write out.

Checked against recordings of the real operator; tests/unit/test_sandbox_hosts.py has the sequences in our own words.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass

from hostler.sandbox.hosts import status as st
from hostler.sandbox.hosts.model import (
    DETACHED,
    FINALIZER,
    IDLE,
    INSPECT,
    PAUSED,
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
)
from hostler.sandbox.hosts.power import deleting, detached, powered
from hostler.sandbox.hosts.register import credentials, registering


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
            return self.without_annotation(STATUS)
        if deleting and FINALIZER not in finalizers:
            return IDLE
        if FINALIZER not in finalizers:
            changed = copy.deepcopy(self.host)
            changed["metadata"]["finalizers"] = [*finalizers, FINALIZER]
            changed["spec"].setdefault("bmc", {"address": "", "credentialsName": ""})
            return Put(changed, status=False)
        if not self.status:
            return self.put(st.first(self.host, self.now))
        return None

    def _restore(self) -> Put | Wait:
        try:
            status = json.loads(self.annotations[STATUS])
        except ValueError:
            return self.without_annotation(STATUS)
        status.setdefault("hardware", hardware_of(self.host))
        self.memory.new_id = True
        return Put(st.with_status(self.host, status, self.now, judged=False), status=True)

    # -- the states

    def _living(self) -> Put | Wait:
        if self.host["metadata"].get("deletionTimestamp"):
            return deleting(self)
        if self.state == "unmanaged":
            return self._unmanaged()
        if self.status["operationalStatus"] == "detached" or (
            DETACHED in self.annotations and self.state in (*st.DONE, "available")
        ):
            return detached(self)
        return credentials(self) or self._states()[self.state]()

    def _states(self) -> dict[str, Callable[[], Put | Wait]]:
        return {
            "registering": lambda: registering(self),
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
        status = self.copy()
        st.move(status, "registering", self.now)
        status["provisioning"]["bootMode"] = st.boot_mode(self.host)
        return self.put(status)

    def _inspecting(self) -> Put | Wait:
        if self.annotations.get(INSPECT) not in (None, "disabled"):
            return self.without_annotation(INSPECT)
        status = self.copy()
        if problem := self._step(status, "inspecting", self.pace.inspecting):
            return problem
        status["hardware"] = hardware_of(self.host)
        st.move(status, "preparing", self.now)
        return self.put(status)

    def _preparing(self) -> Put | Wait:
        status = self.copy()
        if "architecture" not in self.spec and status.get("hardware"):
            changed = copy.deepcopy(self.host)
            changed["spec"]["architecture"] = "x86_64"
            return Put(changed, status=False)
        if problem := self._step(status, "preparing", self.pace.preparing):
            return problem
        st.move(status, "available", self.now)
        return self.put(status)

    def _available(self) -> Put | Wait:
        status = self.copy()
        if "rootDeviceHints" not in status["provisioning"]:
            status["provisioning"]["rootDeviceHints"] = self.hints()
            return self.put(status)
        if self.annotations.get(INSPECT) not in (None, "disabled"):
            st.move(status, "inspecting", self.now)
            return self.put(status)
        if self.spec.get("image") or self.spec.get("customDeploy"):
            if status["provisioningFailCount"] and self.spec.get("image") != status.get("lastAttemptedImage"):
                status["provisioningFailCount"] = 0
            st.move(status, "provisioning", self.now)
            return self.put(status)
        return powered(self, status)

    def _provisioning(self) -> Put | Wait:
        status = self.copy()
        if not (self.spec.get("image") or self.spec.get("customDeploy")):
            self.memory.done()
            st.move(status, "deprovisioning", self.now)
            return self.put(status)
        content = json.dumps([self.spec.get("image"), self.spec.get("customDeploy")])
        if status["operationalStatus"] == "error":
            waiting = self.retry_wait(content)
            if waiting:
                return Wait(waiting)
            status["provisioningFailCount"] += 1
            st.move(status, "deprovisioning", self.now)
            return self.put(status)
        left = self.memory.takes("provisioning", self.now, self.pace.provisioning)
        if left:
            return Wait(left)
        status["lastAttemptedImage"] = self.spec.get("image")
        if message := self.fault(self.host, "provisioning", self.memory.address):
            return self.failed(status, "provisioning", message, content)
        self.memory.done()
        self.memory.power = True
        st.move(status, "provisioned", self.now)
        status["provisioning"]["image"] = self.spec.get("image") or {"url": ""}
        if self.spec.get("customDeploy"):
            status["provisioning"]["customDeploy"] = self.spec["customDeploy"]
        status["provisioningFailCount"] = 0
        return self.put(status)

    def _provisioned(self) -> Put | Wait:
        status = self.copy()
        if self.state == "externally provisioned":
            if not self.spec.get("externallyProvisioned"):
                st.move(status, "provisioned", self.now)
                return self.put(status)
            return powered(self, status)
        has = status["provisioning"].get("image") or {"url": ""}
        wanted = self.spec.get("image") or {"url": ""}
        deployed = status["provisioning"].get("customDeploy")
        if (
            wanted.get("url") != has.get("url")
            or self.spec.get("customDeploy") != deployed
            or not (wanted.get("url") or deployed)
        ):
            st.move(status, "deprovisioning", self.now)
            return self.put(status)
        return powered(self, status)

    def _deprovisioning(self) -> Put | Wait:
        status = self.copy()
        if status["operationalStatus"] == "error":
            st.mend(status)
            return self.put(status)
        left = self.memory.takes("deprovisioning", self.now, self.pace.deprovisioning)
        if left:
            return Wait(left)
        self.memory.done()
        self.memory.power = False
        self.cleared(status, "available")
        return self.put(status)

    def cleared(self, status: Json, after: str) -> None:
        status["provisioning"]["image"] = {"url": ""}
        status["provisioning"].pop("customDeploy", None)
        status["provisioning"].pop("rootDeviceHints", None)
        st.move(status, after, self.now)
        status["errorCount"] = 0

    # -- small change

    def _step(self, status: Json, step: str, seconds: float) -> Put | Wait | None:
        """A step that takes time and may fail; None: it is over and went well."""
        if status["operationalStatus"] == "error":
            waiting = self.retry_wait("")
            if waiting:
                return Wait(waiting)
            st.mend(status)
            return self.put(status)
        left = self.memory.takes(step, self.now, seconds)
        if left:
            return Wait(left)
        if message := self.fault(self.host, step, self.memory.address):
            return self.failed(status, step, message, "")
        self.memory.done()
        return None

    def failed(self, status: Json, step: str, message: str, content: str) -> Put:
        st.fail(status, step, message)
        self.memory.done()
        self.memory.failed_at, self.memory.failed_for = self.now, content
        return self.put(status)

    def retry_wait(self, content: str) -> float:
        """Seconds until a failed step is tried again; what it failed for having changed, at once."""
        if self.memory.failed_at is None or self.memory.failed_for != content:
            return 0.0
        pause: float = 2 ** min(self.status["errorCount"], 10) * self.pace.error_minute * self.pace.jitter
        return max(0.0, self.memory.failed_at + pause - self.now)

    def hints(self) -> Json:
        return dict(self.spec.get("rootDeviceHints") or {"deviceName": "/dev/sda"})

    def copy(self) -> Json:
        return copy.deepcopy(self.status)

    def put(self, status: Json, *, judged: bool = True) -> Put:
        return Put(st.with_status(self.host, status, self.now, judged=judged), status=True)

    def without_annotation(self, name: str) -> Put:
        changed = copy.deepcopy(self.host)
        changed["metadata"]["annotations"].pop(name, None)
        return Put(changed, status=False)
