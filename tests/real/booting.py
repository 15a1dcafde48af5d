"""Disks with the /boot an agent wrote, started by real firmware and real boot loaders in qemu. No loop mounts."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostler.sandbox.gotool import cache_dir

SECTOR = 512
MEGABYTE = 1 << 20
ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
SD_BOOT = Path("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
GRUB_MODULES = Path("/usr/lib/grub/x86_64-efi")
FIRMWARE = (Path("/usr/share/OVMF"), "OVMF_CODE.fd", "OVMF_VARS.fd")
PACKAGES = (
    "qemu-system-x86 ovmf mtools systemd-boot-efi grub-efi-amd64-bin grub-common busybox-static linux-image-cloud-amd64"
)
GRUB_214 = "grub-2.14/x86_64-efi"  # in the sandbox's cache, put there by .ci/grub
BOOT_SECONDS = 300.0
ADDRESS = "10.0.2.2"  # the host's loopback, as a guest of qemu's user network sees it
MODULES = ("virtio_pci", "virtio_net")


def missing() -> str:
    """What of the packages is not here; empty: a boot can be tried."""
    programs = [one for one in ("qemu-system-x86_64", "mcopy", "grub-mkstandalone", "mke2fs") if not shutil.which(one)]
    needed = (SD_BOOT, GRUB_MODULES, FIRMWARE[0] / FIRMWARE[1], busybox())
    files = [one for one in needed if not one.exists()]
    kernels = [] if kernel_release() else ["a cloud kernel"]
    return ", ".join([*programs, *(str(one) for one in files), *kernels])


def grub_214() -> Path:
    """GRUB 2.14's modules and programs, as Debian sid has them."""
    return cache_dir() / GRUB_214


def busybox() -> Path:
    return Path(shutil.which("busybox") or "/bin/busybox")


def kernel_release() -> str:
    found = sorted(one.name.removeprefix("vmlinuz-") for one in Path("/boot").glob("vmlinuz-*cloud-amd64"))
    return found[-1] if found else ""


def kernel() -> bytes:
    return Path(f"/boot/vmlinuz-{kernel_release()}").read_bytes()


def damaged_kernel() -> bytes:
    """One that looks like a kernel to everybody who does not unpack it: header whole, body not; and not signed."""
    whole = bytearray(kernel())
    (header,) = struct.unpack_from("<I", whole, 0x3C)
    struct.pack_into("<II", whole, header + 24 + 112 + 4 * 8, 0, 0)  # with its signature the agent would know
    offset, length = struct.unpack_from("<II", whole, 0x248)
    middle = (whole[0x1F1] + 1) * SECTOR + offset + length // 2
    whole[middle : middle + 4096] = bytes(4096)
    return bytes(whole)


# -- what is started


def initrd(script: str) -> bytes:
    """An initrd whose /init is this shell script, with busybox and a network card's modules."""
    files = {
        "init": (0o100755, f"#!/bin/busybox sh\n{script}".encode()),
        "bin/busybox": (0o100755, busybox().read_bytes()),
    }
    folders = ["bin", "proc", "sys", "dev", "modules"]
    for number, module in enumerate(modules()):
        files[f"modules/{number:02d}-{module.name}"] = (0o100644, module.read_bytes())
    records = [_record(name, 0o040755, b"") for name in folders]
    records += [_record(name, mode, data) for name, (mode, data) in files.items()]
    return b"".join(records) + _record("TRAILER!!!", 0, b"")


def modules() -> list[Path]:
    """Modules of the network card, dependencies first."""
    root = Path(f"/lib/modules/{kernel_release()}")
    needs = {}
    for line in (root / "modules.dep").read_text().splitlines():
        file, _, rest = line.partition(":")
        needs[Path(file).name.partition(".")[0].replace("-", "_")] = [file, *rest.split()]
    found: list[Path] = []
    for name in MODULES:
        for file in reversed(needs.get(name, [])):  # what is not there is built in
            if root / file not in found:
                found.append(root / file)
    return found


UP = """
B=/bin/busybox
$B mount -t proc none /proc; $B mount -t sysfs none /sys; $B mount -t devtmpfs none /dev
for one in /modules/*; do $B insmod $one; done
$B ip link set lo up; $B ip link set eth0 up; $B ip addr add 10.0.2.15/24 dev eth0
"""
OFF = "$B sync; $B poweroff -f; $B sleep 60\n"


def installed_system() -> bytes:
    """Says which boot this is, and goes off."""
    return initrd(f'{UP}echo "INSTALLED $($B cat /proc/sys/kernel/random/boot_id)"\n{OFF}')


def discovery_system(port: int, infra_env: str, host: str, token: str) -> bytes:
    """Registers with the hub, and dies: its kernel does not survive that, and starts the machine anew."""
    url = f"http://{ADDRESS}:{port}/api/assisted-install/v2/infra-envs/{infra_env}/hosts"
    body = f'{{"host_id": "{host}", "discovery_agent_version": "boot-proof"}}'
    ask = f"$B wget -q -O - --header 'X-Secret-Key: {token}' --post-data '{body}' {url}"
    asked = f"until {ask}; do $B sleep 1; done\necho\necho REGISTERED\n"
    return initrd(f'{UP}echo "DISCOVERY $($B cat /proc/cmdline)"\n{asked}exit 1\n')


def broken_system() -> bytes:
    """Its init ends at once, which a kernel does not survive."""
    return initrd("echo BROKEN\nexit 1\n")


def _record(name: str, mode: int, data: bytes) -> bytes:
    """One member of a cpio archive in the format `newc`."""
    _record.number += 1  # type: ignore[attr-defined]
    numbers = (_record.number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)  # type: ignore[attr-defined]
    head = b"070701" + b"".join(f"{one:08x}".encode() for one in numbers) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


_record.number = 0  # type: ignore[attr-defined]


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


# -- disks


def systemd_boot_disk(boot: Path, disk: Path) -> None:
    """One EFI partition which is /boot, started by systemd-boot."""
    target = boot / "EFI/BOOT/BOOTX64.EFI"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SD_BOOT, target)
    shutil.copy(SD_BOOT, boot / "EFI/systemd/systemd-bootx64.efi")
    _write_disk(disk, [(ESP, _fat(boot, disk.with_suffix(".esp"), 256))])


def grub_disk(root: Path, disk: Path) -> None:
    """An EFI partition with GRUB, and a root filesystem with /boot on it."""
    folder = disk.with_suffix(".grub")
    (folder / "EFI/BOOT").mkdir(parents=True)
    early = folder / "early.cfg"
    early.write_text(
        "serial --unit=0\nterminal_output serial\nterminal_input serial\n"
        "search --no-floppy --file --set=root /boot/vmlinuz-6.1\nset prefix=($root)/boot/grub\n"
        "configfile $prefix/grub.cfg\n"
    )
    modules = "part_gpt ext2 fat normal linux loadenv search search_fs_file configfile serial terminal echo test reboot"
    subprocess.run(
        ["grub-mkstandalone", "-O", "x86_64-efi", "-o", str(folder / "EFI/BOOT/BOOTX64.EFI"),
         f"--modules={modules}", f"--install-modules={modules}", "--locales=", "--themes=", "--fonts=",
         f"boot/grub/grub.cfg={early}"],
        check=True, capture_output=True,
    )  # fmt: skip
    early.unlink()
    part = disk.with_suffix(".root")
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum", "-d", str(root), str(part), "256M"],
        check=True, capture_output=True,
    )  # fmt: skip
    _write_disk(disk, [(ESP, _fat(folder, disk.with_suffix(".esp"), 64)), (LINUX, part)])


def grub_214_disk(boot: Path, disk: Path) -> None:
    """An EFI partition with Debian sid's own GRUB 2.14, and a filesystem labelled `boot` as RHCOS has it."""
    folder = disk.with_suffix(".grub")
    (folder / "EFI/BOOT").mkdir(parents=True)
    shutil.copy(grub_214() / "monolithic/grubx64.efi", folder / "EFI/BOOT/BOOTX64.EFI")
    # This program reads its first lines here. What follows finds modules, such as blscfg, by their commands.
    first = "search --label boot --set root --no-floppy\nset prefix=($root)/grub2\nconfigfile $prefix/grub.cfg\n"
    (folder / "EFI/debian").mkdir()
    (folder / "EFI/debian/grub.cfg").write_text(first)
    part = disk.with_suffix(".boot")
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-L", "boot", "-d", str(boot), str(part), "256M"],
        check=True, capture_output=True,
    )  # fmt: skip
    _write_disk(disk, [(ESP, _fat(folder, disk.with_suffix(".esp"), 64)), (LINUX, part)])


def _fat(folder: Path, image: Path, megabytes: int) -> Path:
    with image.open("wb") as file:
        file.truncate(megabytes * MEGABYTE)
    quiet = {"env": {**os.environ, "MTOOLS_SKIP_CHECK": "1"}, "check": True, "capture_output": True}
    subprocess.run(["mformat", "-i", str(image), "-F", "::"], **quiet)  # type: ignore[call-overload]
    for one in sorted(folder.iterdir()):
        if not one.is_symlink():
            subprocess.run(["mcopy", "-s", "-i", str(image), str(one), "::"], **quiet)  # type: ignore[call-overload]
    return image


def _write_disk(disk: Path, parts: list[tuple[uuid.UUID, Path]]) -> None:
    """A GUID partition table over these images, one megabyte apart."""
    entries, start = b"", 2048
    places = []
    for kind, image in parts:
        sectors = image.stat().st_size // SECTOR
        entries += (
            kind.bytes_le + uuid.uuid4().bytes_le + struct.pack("<QQQ", start, start + sectors - 1, 0) + bytes(72)
        )
        places.append((start, image))
        start += -(-sectors // 2048) * 2048 + 2048
    entries = entries.ljust(128 * 128, b"\0")
    last = start + 2048
    guid = uuid.uuid4()
    with disk.open("wb") as file:
        file.truncate((last + 1) * SECTOR)
        protective = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, last)
        file.write(bytes(446) + protective + bytes(48) + b"\x55\xaa")
        file.write(_header(1, last, 2, guid, last, entries))
        file.write(entries)
        for place, image in places:
            file.seek(place * SECTOR)
            with image.open("rb") as source:
                shutil.copyfileobj(source, file, MEGABYTE)
            image.unlink()
        file.seek((last - 32) * SECTOR)
        file.write(entries)
        file.write(_header(last, 1, last - 32, guid, last, entries))


def _header(here: int, other: int, table: int, guid: uuid.UUID, last: int, entries: bytes) -> bytes:
    fields = (here, other, 34, last - 33, guid.bytes_le, table, 128, 128, zlib.crc32(entries))

    def packed(checksum: int) -> bytes:
        return b"EFI PART" + struct.pack("<IIIIQQQQ16sQIII", 0x10000, 92, checksum, 0, *fields)

    return packed(zlib.crc32(packed(0))).ljust(SECTOR, b"\0")


# -- starting


@contextmanager
def started(disk: Path) -> Iterator[Callable[[str], str]]:
    """The machine; what is given waits for words on its console and returns them with the rest of their line."""
    variables, console = disk.with_suffix(".vars"), disk.with_suffix(".console")
    shutil.copy(FIRMWARE[0] / FIRMWARE[2], variables)
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nographic", "-monitor", "none", "-no-user-config",
        "-serial", f"file:{console}",
        "-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE[0] / FIRMWARE[1]}",
        "-drive", f"if=pflash,format=raw,file={variables}",
        "-drive", f"if=ide,format=raw,file={disk}",
        "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def says(words: str) -> str:
        end = time.monotonic() + BOOT_SECONDS
        while True:
            text = console.read_text(errors="replace") if console.exists() else ""
            if found := re.search(rf"{words}[^\r\n]*", text):
                return found[0]
            assert time.monotonic() < end, f"the console never said {words}:\n{text[-3000:]}"
            assert process.poll() is None, f"qemu ended before the console said {words}:\n{text[-3000:]}"
            time.sleep(0.2)

    try:
        yield says
    finally:
        process.kill()
        process.communicate(timeout=60)
