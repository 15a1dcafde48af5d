"""A scratch host in every boot loader's shape, a real HTTP(S) server with faults, and the agent as a real process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hostler.agent.loaders import grub_environment
from tests.unit.kube_pki import Authority

KERNEL = b"MZ" + hashlib.sha256(b"kernel").digest() * 4096
INITRD = hashlib.sha256(b"initrd").digest() * 40_000
BOOT_ID = "11111111-1111-4111-8111-111111111111"
INFRA_ENV, HOST = "c4bd9751-f3ae-49ac-a36b-d3ffebef4a39", "0c1a9d3e-0001-4000-8000-000000000001"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
MENU = """load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
"""
# Statements of bootupd's static grub.cfg, which RHCOS has (coreos/bootupd, src/grub2: grub-static-pre.cfg and
# configs.d): it reads grubenv, takes neither next_entry nor saved_entry from it, and reads custom.cfg after entries.
STATIC = """search --label boot --set boot --no-floppy
set root=$boot
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
menuentry_id_option="--id"
blscfg
if [ "$grub_platform" = "efi" ]; then
  menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
    fwsetup
  }
fi
if [ -f $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
"""
CUSTOM = "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n"
# The host's own commands, as far as the agent uses them; what was asked is written down.
COMMANDS = """#!/bin/sh
echo "$*" >> "{root}/commands"
if [ -f "{root}/fails-$1" ]; then echo "$1 was told to fail" >&2; exit 1; fi
case "$1" in
  bootctl) {{ printf '\\007\\000\\000\\000'; printf '%s' "$3" | iconv -t utf-16le; printf '\\000\\000'; }} \\
      > "{root}/sys/firmware/efi/efivars/LoaderEntryOneShot-{vendor}" ;;
  zipl) date > "{root}/boot/bootmap" ;;
  rpm-ostree) rm "{root}/boot/rollback" ;;
esac
exit 0
"""


class Scratch:
    """A directory that looks like a host's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.put(
            "proc/cmdline", "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=1 ip=10.0.0.7::10.0.0.1:255.255.255.0::eth0:none ro\n"
        )
        self.mounts("/")
        script = self.put("commands.sh", COMMANDS.format(root=root, vendor=VENDOR))
        script.chmod(0o755)

    def put(self, path: str, content: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    def mounts(self, *points: str, kind: str = "ext4", options: str = "rw") -> None:
        lines = [
            f"{20 + i} 1 8:{i} / {point} {options},relatime shared:1 - {kind} /dev/sda{i} rw\n"
            for i, point in enumerate(points)
        ]
        self.put("proc/1/mountinfo", "".join(lines))

    def efi(self, *, secure_boot: bool = False) -> None:
        self.put(
            "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", bytes([6, 0, 0, 0, secure_boot])
        )

    def variable(self, name: str, value: str) -> None:
        self.put(f"sys/firmware/efi/efivars/{name}-{VENDOR}", b"\x07\0\0\0" + value.encode("utf-16-le") + b"\0\0")

    def installed_entry(self, file: str, **more: str) -> None:
        fields = {"title": "Installed", "version": "6.1.0", "linux": "/vmlinuz-6.1", "initrd": "/initrd-6.1", **more}
        self.put(f"boot/loader/entries/{file}", "".join(f"{k.replace('_', '-')} {v}\n" for k, v in fields.items()))

    def grubenv(self, **variables: str) -> None:
        self.put("boot/grub2/grubenv", grub_environment.render(variables))

    @property
    def commands(self) -> list[str]:
        place = self.root / "commands"
        return place.read_text().splitlines() if place.exists() else []

    def rhel(self, **variables: str) -> Scratch:
        self.mounts("/", "/boot")
        self.put("boot/grub2/grub.cfg", MENU + "insmod blscfg\nblscfg\n")
        (self.root / "boot/boot").symlink_to(".")
        self.installed_entry("ostree-2.conf", version="2")
        self.grubenv(**variables)
        return self

    def rhcos(self) -> Scratch:
        """bootupd's static grub.cfg, which takes no entry from grubenv; nor is there one before somebody writes it."""
        self.mounts("/", "/boot")
        self.put("boot/grub2/grub.cfg", STATIC)
        (self.root / "boot/boot").symlink_to(".")
        for number in (1, 2):
            self.installed_entry(f"ostree-{number}.conf", version=str(number))
        return self

    def static214(self) -> Scratch:
        """The same text for GRUB 2.14, whose blscfg is a module."""
        self.grub214().put("boot/grub2/grub.cfg", STATIC)
        (self.root / "boot/grub2/grubenv").unlink()
        return self

    def grub214(self) -> Scratch:
        self.mounts("/", "/boot")
        self.put("boot/grub2/grub.cfg", MENU + "insmod blsuki\nblscfg\n")
        self.put("boot/grub2/x86_64-efi/blsuki.mod", b"\x7fELF")
        self.installed_entry("6f3c-6.1.0.conf")
        self.grubenv()
        return self

    def debian(self) -> Scratch:
        self.put("boot/grub/grub.cfg", MENU + "menuentry 'Debian' { linux /boot/vmlinuz-6.1 }\n" + CUSTOM)
        self.put("boot/grub/grubenv", grub_environment.render({}))
        return self

    def systemd_boot(self) -> Scratch:
        self.mounts("/", "/boot", kind="vfat")
        self.efi()
        self.put("boot/EFI/systemd/systemd-bootx64.efi", b"MZ")
        self.put("boot/loader/loader.conf", "timeout 3\n")
        self.installed_entry("6f3c-6.1.0.conf", sort_key="debian")
        return self

    def zipl(self) -> Scratch:
        self.mounts("/", "/boot")
        self.put("etc/zipl.conf", "[defaultboot]\n")
        self.installed_entry("ostree-2.conf", version="2")
        return self


@dataclass
class Fault:
    """What goes wrong with one path, and how often before it is right."""

    kind: str
    times: int = 10**9


@dataclass
class World:
    """What the server serves and what it was told."""

    files: dict[str, bytes] = field(
        default_factory=lambda: {"/kernel": KERNEL, "/initrd": INITRD, "/rootfs": b"r" * 10}
    )
    faults: dict[str, Fault] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)  # method, path, range, secret
    etags: bool = True
    heedless: bool = False  # goes on with whatever is there now, whatever was asked
    slow: float = 0.0
    deaf: int = 0  # so many results are not heard
    away: str = ""  # where the fault "away" redirects to

    @property
    def results(self) -> list[dict[str, Any]]:
        return [one for one in self.reports if one["step_type"] != "progress"]


class Handler(BaseHTTPRequestHandler):
    world: World
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._file(body=False)

    def do_GET(self) -> None:
        if not self.path.endswith("/instructions"):
            self._file(body=True)
            return
        self._seen()
        answers = self.world.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self._send(answer.pop("status", 200), json.dumps(answer).encode()) if "status" in answer else self._send(
            200, json.dumps(answer).encode()
        )

    def do_POST(self) -> None:
        self._seen()
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if said["step_type"] != "progress" and self.world.deaf > 0:
            self.world.deaf -= 1
            self._send(503, b"no")
            return
        self.world.reports.append(said)
        self._send(204, b"")

    def _seen(self) -> None:
        told = self.headers
        self.world.requests.append((self.command, self.path, told.get("Range", ""), told.get("X-Secret-Key", "")))

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, *, body: bool) -> None:
        self._seen()
        path = urlsplit(self.path).path  # whoever takes us for a proxy names the whole address
        fault = self.world.faults.get(path)
        kind = ""
        if (
            fault is not None
            and fault.times > 0
            and (body or fault.kind in ("404", "503", "busy", "huge", "no-head", "moved", "away", "unsized"))
        ):
            fault.times -= 1
            kind = fault.kind
        if kind == "busy":
            self._send(503, b"no", Retry_After="1")
            return
        if kind == "unsized":
            self._send(200, b"", Content_Length="\u00b2")
            return
        if kind in ("404", "503") or (kind == "no-head" and not body):
            self._send({"404": 404, "503": 503, "no-head": 501}[kind], b"no")
            return
        if kind == "moved":
            self._send(307, b"", Location="/elsewhere" + path)
            return
        if kind == "away":
            self._send(307, b"", Location=self.world.away + path)
            return
        data = self.world.files[path.removeprefix("/elsewhere")]
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        start = 0
        asked = self.headers.get("Range", "")
        if asked and (self.world.heedless or self.headers.get("If-Range") == tag):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if self.world.etags:
            self.send_header("ETag", tag)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if kind == "endless":
            self.close_connection = True  # and nothing says how much comes
        else:
            self.send_header("Content-Length", str(10**15 if kind == "huge" else len(data) - start))
        self.end_headers()
        if not body:
            return
        self._body(data[start:], kind)

    def _body(self, data: bytes, kind: str) -> None:
        if kind in ("reset", "short", "changes"):
            data = data[: len(data) // 2]
        if kind == "changes":
            self.world.files["/initrd"] = self.world.files["/initrd"][::-1]
        if kind == "endless":
            data = data * 3
        step = 64 * 1024
        for at in range(0, len(data), step):
            self.wfile.write(data[at : at + step])
            written = time.monotonic()
            while time.monotonic() - written < self.world.slow:  # which may change meanwhile
                time.sleep(0.02)
        if kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if kind in ("reset", "short", "huge", "changes"):
            self.close_connection = True


class Server:
    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.world = World()
        handler = type("Bound", (Handler,), {"world": self.world})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.ca_file = ""
        if tls:
            authority = Authority()
            pair = authority.issue("hub", "127.0.0.1")
            for name, content in (
                ("ca.pem", authority.certificate),
                ("crt.pem", pair.certificate),
                ("key.pem", pair.key),
            ):
                (directory / name).write_bytes(content)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(directory / "crt.pem", directory / "key.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.ca_file = str(directory / "ca.pem")
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def download_step(server: Server, scratch: Scratch, **more: Any) -> dict[str, Any]:
    arguments = {
        "kernel_url": f"{server.url}/kernel",
        "initrd_url": f"{server.url}/initrd",
        "rootfs_url": f"{server.url}/rootfs?arch=x86_64&version=4.10",
        "host_fs_mount_dir": str(scratch.root),
        **more,
    }
    return {"step_type": "download-boot-artifacts", "step_id": "d-1", "args": [json.dumps(arguments)]}


def reboot_step(scratch: Scratch) -> dict[str, Any]:
    arguments = json.dumps({"host_fs_mount_dir": str(scratch.root)})
    return {"step_type": "reboot-for-reclaim", "step_id": "r-1", "args": [arguments]}


def answer(*steps: dict[str, Any], ends: bool = False) -> dict[str, Any]:
    action = "exit" if ends else "continue"
    return {"next_instruction_seconds": 0.1, "post_step_action": action, "instructions": list(steps)}


def start_agent(
    server: Server, scratch: Scratch, zipapp: Path, under: tuple[str, ...] = (), /, **more: str
) -> subprocess.Popen[str]:
    """`under`: words before its command."""
    token = scratch.root.parent / "token"
    token.write_text("secret-of-this-host\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HUB_URL": server.url,
        "HUB_PLAIN_HTTP": "true",
        "INFRA_ENV_ID": INFRA_ENV,
        "HOST_ID": HOST,
        "TOKEN_FILE": str(token),
        "HOST_MOUNT": str(scratch.root),
        "EXPECTED_BOOT_ID": BOOT_ID,
        "ENTER_HOST": str(scratch.root / "commands.sh"),
        "RETRY_SECONDS": "0.02",
        "PATIENCE_SECONDS": "0",
        "CA_FILE": server.ca_file,
        **more,
    }
    # -I: nothing of this checkout or its environment can be imported; only the one file and the standard library.
    command = [*under, shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable, "-I", str(zipapp)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def run_agent(server: Server, scratch: Scratch, zipapp: Path, under: tuple[str, ...] = (), /, **more: str) -> str:
    """Until it ends; returns what it said."""
    process = start_agent(server, scratch, zipapp, under, **more)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "Traceback" not in said, said
    return said
