"""A node's own system and a privileged pod on it, without a container runtime: namespaces, and nothing simulated.

The host has a process 1, a mount table and a read-only /boot of its own; its programs are busybox and scripts that note
how they were called. The pod is what the DaemonSet says: the image's root file system, the host's processes (hostPID)
and the host's root at /host. What this assumes: the runtime gives the pod a slave copy of the host's mounts, so that a
/boot which is read-only when the pod starts stays read-only there until the pod changes that itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.real.agent_world import Scratch
from tests.real.podding import Image
from tests.tools import not_here, tool

PACKAGES = {"busybox": "busybox-static", "unshare": "util-linux", "nsenter": "util-linux", "pivot_root": "util-linux"}
# In the new namespaces: the scratch folder becomes the root, /boot a filesystem of its own that is mounted read-only.
HOST_SCRIPT = """
mount --bind "$1" "$1"; cd "$1"
mkdir -p proc dev old image run
mount -t proc proc proc; mount --rbind /dev dev
mount --bind "$2" image
mount -t tmpfs -o size=64m tmpfs old; cp -a boot/. old; mount --move old boot; mount -o remount,ro boot
mount -t tmpfs tmpfs run; mkdir run/old
pivot_root . run/old
exec /bin/busybox sh -c '/bin/busybox umount -l /run/old; : > /run/ready; exec /bin/busybox sleep 100000'
"""
POD_SCRIPT = """
B=/bin/busybox
$B mount --make-rslave /
$B mount --rbind / /image/host
$B mount -t proc proc /image/proc; $B mount --rbind /dev /image/dev
$B mount -t tmpfs tmpfs /image/run
$B cp -a /reclaim /image/run/reclaim
exec $B chroot /image "$@"
"""
NOTING = '#!/bin/busybox sh\necho "${0##*/} $*" >> /commands\n'


@dataclass(frozen=True)
class NodeHost:
    """A running host: `root` shows its files as its process 1 sees them."""

    pid: int
    root: Path

    def run_pod(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Until the pod's process has ended."""
        enter = [str(shutil.which("nsenter")), "--target", str(self.pid), "--mount", "--pid", "--"]
        inside = ["/bin/busybox", "unshare", "-m", "/bin/busybox", "sh", "-ec", POD_SCRIPT, "pod", *command]
        return subprocess.run([*enter, *inside], env=dict(env), capture_output=True, text=True, timeout=120)


@contextmanager
def node_host(scratch: Scratch, image: Image, files: Mapping[str, str]) -> Iterator[NodeHost]:
    """`files`: what the kubelet mounts below /run/reclaim of the pod, from Secrets and ConfigMaps."""
    if os.geteuid() != 0:
        not_here("A host can be played by root only: it needs a mount namespace of its own")
    for name, package in PACKAGES.items():
        tool(name, package)
    for name, text in files.items():
        scratch.put(f"reclaim/{name}", text)
    scratch.put("bin/busybox", Path(str(shutil.which("busybox"))).read_bytes()).chmod(0o755)
    (scratch.root / "bin/mount").symlink_to("busybox")
    for name in ("systemctl", "bootctl", "rpm-ostree"):
        scratch.put(f"usr/bin/{name}", NOTING).chmod(0o755)
    for folder in ("host", "proc", "dev", "run"):  # as a runtime makes what it mounts on
        (image.root / folder).mkdir(exist_ok=True)
    command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    process = subprocess.Popen([*command, "sh", "-ec", HOST_SCRIPT, "host", str(scratch.root), str(image.root)])
    try:
        yield _ready(process)
    finally:
        process.kill()
        process.wait(timeout=60)


def _ready(process: subprocess.Popen[bytes]) -> NodeHost:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the host could not be made; its shell said why"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/root/run/ready").exists():
            return NodeHost(int(children[0]), Path(f"/proc/{children[0]}/root"))
        time.sleep(0.05)
    raise AssertionError("the host was not ready within a minute")
