"""Why a host stands where it does: the reasons of the condition `Reclaimed`, and those of a failed step. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias


class Reason(StrEnum):
    """Reasons of the condition `Reclaimed`; a failed step has those of `StepFailure`."""

    PREVIOUS_CLUSTER_UNKNOWN = "PreviousClusterUnknown"
    NOTE_NOT_CONFIRMED = "PreviousClusterNotConfirmed"
    BMC_MANAGED = "BMCManaged"
    NO_KUBECONFIG = "NoKubeconfig"
    SPOKE_UNREACHABLE = "SpokeUnreachable"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    NODE_NOT_FOUND = "NodeNotFound"
    ANOTHER_MACHINE = "AnotherMachine"
    MACHINE_NOT_PROVEN = "MachineNotProven"
    MANAGED_BY_MACHINE_PROVIDER = "ManagedByMachineProvider"
    LAST_CONTROL_PLANE = "LastControlPlane"
    QUORUM_LOST = "QuorumLost"
    WORKERS_FIRST = "WorkersFirst"
    ARTIFACTS_UNAVAILABLE = "ArtifactsUnavailable"
    ARTIFACTS_NOT_TRUSTED = "ArtifactsNotTrusted"
    KERNEL_ARGUMENT_REFUSED = "KernelArgumentRefused"
    HUB_NOT_CONFIGURED = "HubNotConfigured"
    DRAIN_FAILED = "DrainFailed"
    DECIDING = "Deciding"
    RECLAIMING = "Reclaiming"
    REBOOTING = "Rebooting"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    REBOUND = "Rebound"
    STEP_FAILED = "StepFailed"
    NOT_ONE_SHOT = "NotOneShot"
    REGISTERED = "Registered"
    OCCUPIED = "Occupied"


class StepFailure(StrEnum):
    """What an agent may give as the reason of a failed step; anything else becomes `StepFailed`.

    A reason is a label of our metrics, and some of ours decide. The agent's own table is in agent/problem.py, which
    imports nothing of ours; a test keeps them equal.
    """

    NO_SPACE = "NoSpace"
    ARTIFACTS_UNAVAILABLE = "ArtifactsUnavailable"
    DOWNLOAD_FAILED = "DownloadFailed"
    WRONG_HASH = "WrongHash"
    UNTRUSTED_CERTIFICATE = "UntrustedCertificate"
    UNKNOWN_BOOTLOADER = "UnknownBootloader"
    SECURE_BOOT = "SecureBoot"
    NOT_ONE_SHOT = "NotOneShot"
    ENTRY_NOT_VERIFIABLE = "EntryNotVerifiable"
    BAD_ARGUMENTS = "BadArguments"
    COMMAND_FAILED = "CommandFailed"
    DISK_FAILED = "DiskFailed"
    REBOOT_FAILED = "RebootFailed"
    BOOTED_BACK = "BootedBack"
    UNKNOWN_STEP = "UnknownStep"


Cause: TypeAlias = Reason | StepFailure
_CAUSES: dict[str, Cause] = {one.value: one for one in (*StepFailure, *Reason)}


def find_cause(text: str) -> Cause | None:
    """The reason that a condition or a report names; None where this version knows no such reason."""
    return _CAUSES.get(text)


# With these the note about the old cluster is not what the host was last seen in: nothing is begun from it.
UNCONFIRMED = (Reason.NOTE_NOT_CONFIRMED, Reason.REGISTERED)
