"""What the agent wrote really boots: OVMF with systemd-boot, with GRUB, and with GRUB 2.14 and bootupd's grub.cfg."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hostler.sandbox import Options, Sandbox
from hostler.sandbox.expand import node_object
from hostler.sandbox.fleet import Node
from hostler.sandbox.load import create
from tests.real import booting
from tests.real.conftest import own_namespace
from tests.real.reclaiming import Case, Make, Site, making, site, until
from tests.tools import not_here

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def packages() -> None:
    if lacking := booting.missing():
        not_here(f"Nothing can be booted here: {lacking} not found; apt-get install {booting.PACKAGES}")


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A small cluster of its own: a boot takes a minute, in which others use the shared one."""
    box = Sandbox.up(tmp_path_factory.mktemp("apart"), Options(vcenter=False))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    create(box, [node_object(Node(name=f"other-{n}"), 1 + n, None, now, off=False) for n in range(5)])
    yield box
    box.down()


@pytest.fixture
def clusters(apart: Sandbox, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "hub").mkdir()
    with own_namespace(apart, "t") as home, site(apart, apart, tmp_path / "hub", home) as made:
        yield replace(made, tls=False)  # busybox cannot check a certificate


@pytest.fixture
def make(clusters: Site, tmp_path: Path) -> Iterator[Make]:
    with making(clusters, clusters.home, tmp_path) as one:
        yield one


def machine(make: Make, loader: str) -> Case:
    """A host of this loader with an installed system that says which boot it is."""
    case = make(scratch=loader)
    for name, data in (("vmlinuz-6.1", booting.kernel()), ("initrd-6.1", booting.installed_system())):
        case.scratch.put(f"boot/{name}", data)
    console = "options console=ttyS0 quiet\n"
    if loader == "static214":
        if not booting.grub_214().exists():
            not_here(f"GRUB 2.14 is not in {booting.grub_214()}; .ci/grub fetches it from Debian sid")
        modules = case.scratch.root / "boot/grub2/x86_64-efi"
        shutil.copytree(booting.grub_214(), modules, dirs_exist_ok=True, ignore=shutil.ignore_patterns("monolithic"))
        grub = case.scratch.root / "boot/grub2/grub.cfg"
        grub.write_text("set timeout=0\n" + grub.read_text())
    if loader == "debian":
        grub = case.scratch.root / "boot/grub/grub.cfg"
        entry = "linux /boot/vmlinuz-6.1 console=ttyS0 quiet\n initrd /boot/initrd-6.1\n"
        grub.write_text("set timeout=0\n" + grub.read_text().replace("linux /boot/vmlinuz-6.1", entry))
    else:
        place = case.scratch.root / "boot/loader/entries/6f3c-6.1.0.conf"
        place.write_text(place.read_text() + console)
        if loader == "systemd_boot":
            case.scratch.put("boot/loader/loader.conf", "timeout 0\n")
    return case


def prepared(case: Case, discovery: bytes, kernel: bytes = b"") -> None:
    """The host's /boot is what the agent made of it, and it is told to restart."""
    place = case.site.folder / "artifacts" / case.infra_env
    (place / "kernel").write_bytes(kernel or booting.kernel())
    (place / "initrd").write_bytes(discovery)
    # A kernel that dies restarts the machine, as a host's watchdog would.
    early = ["earlyprintk=serial,ttyS0,115200"] if kernel else []
    case.kernel_arguments("console=ttyS0", "panic=-1", "quiet", *early)
    case.to_rebooting()
    case.reboot()


def disk_of(case: Case, loader: str) -> Path:
    disk = case.scratch.root.parent / "disk.img"
    if loader == "debian":
        root = case.scratch.root.parent / "root"
        (root / "boot").mkdir(parents=True)
        (case.scratch.root / "boot").rename(root / "boot")
        booting.grub_disk(root, disk)
        (root / "boot").rename(case.scratch.root / "boot")
    elif loader == "static214":
        booting.grub_214_disk(case.scratch.root / "boot", disk)
    else:
        booting.systemd_boot_disk(case.scratch.root / "boot", disk)
    return disk


@pytest.mark.parametrize("loader", ["systemd_boot", "debian", "static214"])
def test_the_host_starts_into_discovery_once_and_registers(loader: str, clusters: Site, make: Make) -> None:
    """The entry is for one boot: the next one is the installed system's, whatever became of discovery."""
    with clusters.running(HOSTLER_RECLAIM_KERNEL_ARGUMENTS="panic,quiet,earlyprintk"):
        case = machine(make, loader)
        token = clusters.token(case)
        prepared(case, booting.discovery_system(clusters.port, case.infra_env, case.name, token))
        with booting.started(disk_of(case, loader)) as says:
            line = says("DISCOVERY")
            says("REGISTERED")
            says("INSTALLED")
        assert "ignition.firstboot" in line
        assert "coreos.live.rootfs_url=http" in line
        assert "'" not in line, "a quote of the entry arrived in the kernel's command line"
        case.reach("discovering-unbound", "Registered")


@pytest.mark.parametrize("loader", ["systemd_boot", "debian", pytest.param("static214", marks=pytest.mark.full)])
def test_a_discovery_that_dies_falls_back_and_is_reported(loader: str, clusters: Site, make: Make) -> None:
    with clusters.running(HOSTLER_RECLAIM_KERNEL_ARGUMENTS="panic,quiet,earlyprintk"):
        case = machine(make, loader)
        prepared(case, booting.broken_system())
        with booting.started(disk_of(case, loader)) as says:
            says("BROKEN")
            boot = says("INSTALLED").split()[1]
        came_back(case, boot)


@pytest.mark.full
@pytest.mark.parametrize("loader", ["systemd_boot", "debian"])
def test_a_damaged_kernel_stops_and_the_next_start_is_the_installed_systems(
    loader: str, clusters: Site, make: Make
) -> None:
    """Damaged where it comes from, so that its hash is right; nothing restarts the machine but somebody's hand."""
    with clusters.running(HOSTLER_RECLAIM_KERNEL_ARGUMENTS="panic,quiet,earlyprintk"):
        case = machine(make, loader)
        prepared(case, booting.broken_system(), booting.damaged_kernel())
        disk = disk_of(case, loader)
        with booting.started(disk) as says:
            says("Failed to decompress kernel|System halted")  # its EFI stub gives up, or what it unpacks itself with
        with booting.started(disk) as says:
            boot = says("INSTALLED").split()[1]
        came_back(case, boot)


def came_back(case: Case, boot: str) -> None:
    """The kubelet starts the pod again in the system that came back."""
    case.scratch.put("proc/sys/kernel/random/boot_id", f"{boot}\n")
    case.start_agent()
    case.reach("unbinding-pending-user-action", "BootedBack")
    assert boot in case.message()
    until(lambda: not case.site.left(), "nothing is left")
