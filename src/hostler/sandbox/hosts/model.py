"""What the simulator knows of one host beside the object itself, how fast things go, and what may go wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

FINALIZER = "baremetalhost.metal3.io"
PAUSED = "baremetalhost.metal3.io/paused"
STATUS = "baremetalhost.metal3.io/status"
DETACHED = "baremetalhost.metal3.io/detached"
REBOOT = "reboot.metal3.io"
INSPECT = "inspect.metal3.io"
FAIL = "sandbox.hostler.dev/fail"  # a person's wish: the step that is to fail, such as `provisioning`

# The steps that can fail, and the word the host's status has for it.
ERROR_TYPES = {
    "registering": "registration error",
    "inspecting": "inspection error",
    "preparing": "preparation error",
    "provisioning": "provisioning error",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that each step takes; a real machine takes minutes."""

    registering: float = 0.0
    inspecting: float = 0.0
    preparing: float = 0.0
    provisioning: float = 0.2
    deprovisioning: float = 0.2
    power: float = 0.0
    secret_retry: float = 10.0
    error_minute: float = 60.0  # after the nth error a step is tried again after 2^n times this, times `jitter`
    jitter: float = 0.75


@dataclass(frozen=True, slots=True)
class Secret:
    """The BMC secret as far as it matters: its version, and whether it names a user and a password."""

    version: str
    complete: bool = True


# What goes wrong in this step of this host: a sentence, or nothing. Gets the step and the BMC address last taken.
Fault: TypeAlias = Callable[[Json, str, str], str]


def asked_fault(host: Json, step: str, _: str) -> str:
    """The failures a person asks for by annotation."""
    wish = (host["metadata"].get("annotations") or {}).get(FAIL, "")
    return f"{step} was asked to fail by annotation {FAIL}" if wish == step else ""


@dataclass(slots=True)
class Memory:
    """The machine itself and what the operator's own memory holds; gone with the process, as in life."""

    power: bool | None = None  # whether the machine is really on; None: as its status says
    began: float = 0.0  # when the step under way began
    step: str = ""  # which step that is
    address: str = ""  # the BMC address that was last taken over
    new_id: bool = False  # registered again, so that its id changes
    failed_at: float | None = None
    failed_for: str = ""  # the content it failed for: a change of it is tried at once
    booting: bool = False  # a reboot has taken the power away and will bring it back
    uid: str = ""  # of the BareMetalHost that this is about

    def takes(self, step: str, now: float, seconds: float) -> float:
        """How much longer this step takes; it begins now if it was not under way."""
        if self.step != step:
            self.step, self.began = step, now
        return max(0.0, self.began + seconds - now)

    def done(self) -> None:
        self.step = ""


@dataclass(frozen=True, slots=True)
class Put:
    """The object as it is to be: written whole, to the object or to its status."""

    host: Json
    status: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to write before so many seconds have passed, or something changes."""

    seconds: float | None = None


IDLE = Wait()


def new_id() -> str:
    return str(uuid.uuid4())


def hardware_of(host: Json) -> Json:
    """What an inspection finds: always the same machine, told apart by its boot MAC."""
    mac = host["spec"].get("bootMACAddress") or "02:00:00:00:00:01"
    name = host["metadata"]["name"]
    return {
        "hostname": name,
        "ramMebibytes": 262144,
        "cpu": {"arch": "x86_64", "count": 64, "model": "simulated", "flags": []},
        "nics": [{"name": "eth0", "mac": mac, "ip": address_of(mac), "pxe": True, "model": "simulated"}],
        "storage": [{"name": "/dev/sda", "sizeBytes": 500 * 10**9, "type": "SSD", "serialNumber": f"serial-{name}"}],
        "systemVendor": {"manufacturer": "hostler sandbox", "productName": "simulated", "serialNumber": name},
    }


def address_of(mac: str) -> str:
    """An address of the documentation ranges, made from the MAC so that it stays the same."""
    last = [int(part, 16) for part in mac.split(":")[-2:]]
    return f"198.18.{last[0]}.{last[1]}"
