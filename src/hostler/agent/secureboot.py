"""With Secure Boot on, a kernel the firmware's chain does not trust leaves the host in its boot menu. So look first."""

from __future__ import annotations

from hostler.agent import pe
from hostler.agent.host import Host
from hostler.agent.loaders import EFIVARS
from hostler.agent.problem import Reason, Refusal

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"


def is_on(host: Host) -> bool:
    """Whether the firmware checks signatures. Firmware whose variables cannot be seen is a refusal, not a no."""
    if not host.is_dir("/sys/firmware/efi"):
        return False
    if not host.names(EFIVARS):
        raise Refusal(Reason.SECURE_BOOT, "Whether Secure Boot is on is not known: the host's efivars are not mounted.")
    raw = host.read(f"{EFIVARS}/SecureBoot-{GLOBAL}")
    return raw is not None and raw[4:5] == b"\x01"


def check(host: Host, kernel: str) -> str:
    """Refuse a kernel that this host would not start; otherwise say why it would.

    The chain of trust itself (db, shim, MOK) is not replayed. What is known to start here is the installed kernel: a
    discovery kernel signed with one of the certificates in its signature starts too.
    """
    if not is_on(host):
        return "Secure Boot is off."
    ours = pe.signers(host.at(kernel))
    if not ours:
        raise Refusal(
            Reason.SECURE_BOOT,
            "Secure Boot is on and the discovery kernel is not signed; the host would stop in its boot menu.",
        )
    for installed in installed_kernels(host):
        if ours & pe.signers(host.at(installed)):
            return f"Secure Boot is on; the discovery kernel has the same signer as {installed}."
    raise Refusal(
        Reason.SECURE_BOOT,
        "Secure Boot is on and the discovery kernel is signed by none of the keys that signed this host's kernels; the "
        "host would stop in its boot menu.",
    )


def installed_kernels(host: Host) -> list[str]:
    """Kernels of the installed system: in /boot, below /boot/ostree, and where packages keep them."""
    found = [f"/boot/{name}" for name in host.names("/boot") if name.startswith("vmlinuz")]
    for deployment in host.names("/boot/ostree"):
        directory = f"/boot/ostree/{deployment}"
        found += [f"{directory}/{name}" for name in host.names(directory) if name.startswith("vmlinuz")]
    for version in host.names("/usr/lib/modules"):
        if host.is_file(f"/usr/lib/modules/{version}/vmlinuz"):
            found.append(f"/usr/lib/modules/{version}/vmlinuz")
    return found
