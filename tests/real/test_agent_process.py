"""The agent as a process of its own, from its one file, against a scratch host and a real server."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.agent.loaders import grub_environment
from hostler.agent.pack import pack
from tests.real.agent_world import (
    BOOT_ID,
    INFRA_ENV,
    INITRD,
    KERNEL,
    Fault,
    Scratch,
    Server,
    answer,
    download_step,
    reboot_step,
    run_agent,
    start_agent,
)
from tests.tools import tool
from tests.unit.kube_pki import Authority

NETWORK = "ip=10.0.0.7::10.0.0.1:255.255.255.0::eth0:none"


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("agent") / "hostler-agent"
    pack(target)
    return target


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path / "host")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.close()


def dialect(scratch: Scratch, name: str) -> Scratch:
    return {
        "rhel": scratch.rhel,
        "grub214": scratch.grub214,
        "rhcos": scratch.rhcos,
        "static214": scratch.static214,
        "debian": scratch.debian,
        "systemd-boot": scratch.systemd_boot,
        "zipl": scratch.zipl,
    }[name]()


def reclaim(server: Server, scratch: Scratch, zipapp: Path, **more: str) -> dict[str, object]:
    """Download and reboot, as the hub would ask; returns what the download step said it did."""
    server.world.answers = [answer(download_step(server, scratch)), answer(reboot_step(scratch), ends=True)]
    said = run_agent(server, scratch, zipapp, **more)
    done = server.world.results
    assert [one["exit_code"] for one in done] == [0, 0], said
    found = json.loads(done[0]["output"])
    assert isinstance(found, dict)
    return found


def test_rhel_gets_the_published_entry_for_one_boot(server: Server, scratch: Scratch, zipapp: Path) -> None:
    done = reclaim(server, scratch.rhel(), zipapp)
    assert scratch.text("boot/loader/entries/00-assisted-discovery.conf") == (
        "title Assisted Installer Discovery\n"
        "version 999\n"
        "options random.trust_cpu=on ignition.firstboot ignition.platform.id=metal panic=30 "
        f"'coreos.live.rootfs_url={server.url}/rootfs?arch=x86_64&version=4.10' {NETWORK}\n"
        "linux /boot/discovery/vmlinuz\n"
        f"initrd /boot/discovery/{INFRA_ENV}-initrd.img\n"
    )
    assert (scratch.root / "boot/discovery/vmlinuz").read_bytes() == KERNEL
    assert (scratch.root / f"boot/discovery/{INFRA_ENV}-initrd.img").read_bytes() == INITRD
    # The published name makes it the default for ever; the installed system is named so that a failure falls back.
    env = grub_environment.parse((scratch.root / "boot/grub2/grubenv").read_bytes())
    assert env == {"next_entry": "00-assisted-discovery", "saved_entry": "ostree-2"}
    assert done["falls_back"] is True
    assert scratch.commands == ["systemctl reboot"]
    # The hub is on the same server here as the files, so the token goes there too; see the next test for another one.
    assert {secret for *_, secret in server.world.requests} == {"secret-of-this-host"}


def test_the_token_goes_to_the_hub_and_nowhere_else_nor_to_a_proxy(
    tmp_path: Path, server: Server, scratch: Scratch, zipapp: Path
) -> None:
    files = Server(tmp_path)
    try:
        server.world.faults["/kernel"] = Fault("away")
        server.world.away = files.url
        step = download_step(server, scratch.rhel(), initrd_url="http://images.invalid/initrd")
        server.world.answers = [answer(step), answer(ends=True)]
        run_agent(server, scratch, zipapp, HTTP_PROXY=files.url, NO_PROXY="127.0.0.1")
        assert [one["exit_code"] for one in server.world.results] == [0]
        assert {path for _, path, _, _ in files.world.requests} == {"http://images.invalid/initrd", "/kernel"}
        assert {secret for *_, secret in files.world.requests} == {""}
    finally:
        files.close()


def test_grub_2_14_is_named_so_that_no_digit_leads_and_padded(server: Server, scratch: Scratch, zipapp: Path) -> None:
    done = reclaim(server, scratch.grub214(), zipapp)
    entry = scratch.text("boot/loader/entries/zz-assisted-discovery.conf")
    assert "\n\n" not in entry
    fields = dict(line.split(" ", 1) for line in entry.splitlines())
    assert fields["linux"] == "/discovery/vmlinuz"
    assert (8 + len(fields["linux"]) + len(fields["options"])) % 16 != 0
    env = grub_environment.parse((scratch.root / "boot/grub2/grubenv").read_bytes())
    assert env == {"next_entry": "zz-assisted-discovery", "saved_entry": "1"}  # 6f3c... would be read as a number
    assert done["falls_back"] is True


BLOCK = """### BEGIN assisted-discovery ###
load_env next_entry
if [ -n "${next_entry}" ]; then
\tset default="${next_entry}"
\tset next_entry=
\tsave_env next_entry
fi
### END assisted-discovery ###
"""


@pytest.mark.parametrize("name", ["rhcos", "static214", "user.cfg"])
def test_a_grub_cfg_that_takes_no_next_entry_is_taught_it(
    server: Server, scratch: Scratch, zipapp: Path, name: str
) -> None:
    """bootupd's grub.cfg reads custom.cfg: our block there takes the entry for one boot; the default stays."""
    hook = "user.cfg" if name == "user.cfg" else "custom.cfg"
    dialect(scratch, "rhcos" if name == "user.cfg" else name)
    if name == "user.cfg":  # RHCOS of before bootupd reads only this, and before the entries
        scratch.put("boot/grub2/grub.cfg", "source $prefix/user.cfg\nblscfg\n")
    scratch.put(f"boot/grub2/{hook}", "set timeout=3")
    done = reclaim(server, scratch, zipapp)
    assert scratch.text(f"boot/grub2/{hook}") == f"set timeout=3\n{BLOCK}"
    ours = scratch.text("boot/loader/entries/~assisted-discovery.conf")
    assert "\nversion 0\n" in ours
    assert grub_environment.parse((scratch.root / "boot/grub2/grubenv").read_bytes()) == {
        "next_entry": "~assisted-discovery"
    }
    assert (done["falls_back"], done["lasts"]) == (True, "")
    assert done["selected_by"] == f"next_entry, by a block in /boot/grub2/{hook}"
    subprocess.run([tool("grub-script-check", "grub-common"), str(scratch.root / f"boot/grub2/{hook}")], check=True)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("load_env\nblscfg\n", "reads no custom.cfg"),
        ("source $prefix/user.cfg\nset default=0\nblscfg\n", "sets its default after it has read user.cfg"),
    ],
)
def test_a_grub_that_cannot_forget_gets_the_first_entry_or_is_refused(
    server: Server, scratch: Scratch, zipapp: Path, text: str, reads: str
) -> None:
    """No next_entry, nor a file of the owner's in time: the published way, and why later boots are discovery too."""
    scratch.rhcos().put("boot/grub2/grub.cfg", text)
    refused = failed(server, scratch, zipapp, REQUIRE_ONE_SHOT="true")
    why = f"/boot/grub2/grub.cfg takes no next_entry from grubenv and {reads}"
    assert refused["reason"] == "NotOneShot"
    assert why in refused["sentence"]
    assert not [one for one in server.world.requests if one[1] in ("/kernel", "/initrd")]
    server.world.reports.clear()
    done = reclaim(server, scratch, zipapp)
    assert (done["falls_back"], done["lasts"], done["selected_by"]) == (False, why, "it is the first entry")
    assert "\nversion 999\n" in scratch.text("boot/loader/entries/00-assisted-discovery.conf")


def test_grub_without_blscfg_keeps_the_owners_custom_cfg(server: Server, scratch: Scratch, zipapp: Path) -> None:
    scratch.debian().put("boot/grub/custom.cfg", "set timeout=3\n")
    reclaim(server, scratch, zipapp)
    custom = scratch.text("boot/grub/custom.cfg")
    assert custom.startswith("set timeout=3\n")
    assert "--id assisted-discovery" in custom
    assert "linux /boot/discovery/vmlinuz random.trust_cpu=on" in custom  # /boot is no filesystem of its own here
    env = grub_environment.parse((scratch.root / "boot/grub/grubenv").read_bytes())
    assert env == {"next_entry": "assisted-discovery"}
    checker, editor = shutil.which("grub-script-check"), shutil.which("grub-editenv")
    if checker is None or editor is None:
        print("grub-common is not installed: GRUB's own tools did not look at what was written")
        return
    subprocess.run([checker, str(scratch.root / "boot/grub/custom.cfg")], check=True)
    listed = subprocess.check_output([editor, str(scratch.root / "boot/grub/grubenv"), "list"], text=True)
    assert listed == "next_entry=assisted-discovery\n"


def test_systemd_boot_gets_an_entry_with_one_try_and_no_quotes(server: Server, scratch: Scratch, zipapp: Path) -> None:
    done = reclaim(server, scratch.systemd_boot(), zipapp)
    entry = scratch.text("boot/loader/entries/assisted-discovery+1.conf")
    assert f"coreos.live.rootfs_url={server.url}/rootfs?arch=x86_64&version=4.10 " in entry
    assert "'" not in entry
    assert f"initrd /discovery/{INFRA_ENV}-initrd.img" in entry
    assert (done["selected_by"], done["falls_back"]) == ("boot counting", True)
    assert scratch.commands == ["systemctl reboot"]


@pytest.mark.parametrize("how", ["loader.conf", "firmware", "unified image", "smaller sort-key"])
def test_systemd_boot_with_another_default_is_told_once(
    server: Server, scratch: Scratch, zipapp: Path, how: str
) -> None:
    scratch.systemd_boot()
    if how == "loader.conf":
        scratch.put("boot/loader/loader.conf", "default 6f3c-*\n")
    elif how == "firmware":
        scratch.variable("LoaderEntryDefault", "6f3c-6.1.0.conf")
    elif how == "unified image":
        scratch.put("boot/EFI/Linux/os.efi", b"MZ")
    else:
        scratch.installed_entry("other.conf", sort_key="00")
    done = reclaim(server, scratch, zipapp)
    assert (done["entry"], done["selected_by"]) == ("assisted-discovery.conf", "LoaderEntryOneShot")
    assert scratch.commands == ["bootctl set-oneshot assisted-discovery.conf", "systemctl reboot"]


def test_zipl_is_run_and_nothing_is_quoted(server: Server, scratch: Scratch, zipapp: Path) -> None:
    done = reclaim(server, scratch.zipl(), zipapp)
    entry = scratch.text("boot/loader/entries/00-assisted-discovery.conf")
    assert "linux /discovery/vmlinuz\n" in entry
    assert "'" not in entry
    assert done["falls_back"] is False
    assert scratch.commands == ["zipl", "systemctl reboot"]


def test_a_read_only_boot_is_writable_only_while_we_write(server: Server, scratch: Scratch, zipapp: Path) -> None:
    scratch.rhel().mounts("/", "/boot", options="ro")
    reclaim(server, scratch, zipapp)
    assert scratch.commands == ["mount -o remount,rw /boot", "mount -o remount,ro /boot", "systemctl reboot"]


def test_grub_that_cannot_clear_its_environment_does_not_fall_back(
    server: Server, scratch: Scratch, zipapp: Path
) -> None:
    scratch.rhel().mounts("/", "/boot", kind="btrfs")
    done = reclaim(server, scratch, zipapp)
    assert done["falls_back"] is False
    assert "GRUB cannot write /boot/grub2/grubenv (btrfs on" in str(done["lasts"])


def failed(server: Server, scratch: Scratch, zipapp: Path, **more: str) -> dict[str, str]:
    """Ask for the download only, then end; the step failed, and the host is as it was. Returns reason and sentence."""
    before = snapshot(scratch)
    server.world.answers = server.world.answers or [answer(download_step(server, scratch)), answer(ends=True)]
    said = run_agent(server, scratch, zipapp, **more)
    (result,) = server.world.results
    assert result["exit_code"] == 1, said
    assert snapshot(scratch) == before
    assert "systemctl reboot" not in scratch.commands
    return {"reason": json.loads(result["output"])["reason"], "sentence": result["error"]}


def snapshot(scratch: Scratch) -> dict[str, str]:
    return {
        str(place.relative_to(scratch.root)): hashlib.sha256(place.read_bytes()).hexdigest()
        for place in sorted((scratch.root / "boot").rglob("*"))
        if place.is_file() and place.name != "bootmap"
    }


@pytest.mark.parametrize(
    ("path", "kind", "reason"),
    [
        ("/initrd", "huge", "NoSpace"),
        ("/kernel", "404", "ArtifactsUnavailable"),
        ("/initrd", "404", "ArtifactsUnavailable"),
        ("/rootfs", "404", "ArtifactsUnavailable"),
        ("/kernel", "503", "DownloadFailed"),
        ("/initrd", "short", "DownloadFailed"),
        ("/initrd", "endless", "DownloadFailed"),  # it announced less than it sends: the disk is not filled up
        ("/kernel", "unsized", "ArtifactsUnavailable"),
    ],
)
def test_what_cannot_be_fetched_leaves_the_host_as_it_was(
    server: Server, scratch: Scratch, zipapp: Path, path: str, kind: str, reason: str
) -> None:
    server.world.etags = False  # nothing to resume by: a short body stays short
    server.world.faults[path] = Fault(kind)
    found = failed(server, scratch.rhel(), zipapp)
    assert found["reason"] == reason
    assert path in found["sentence"] or kind == "huge"
    if kind == "huge":
        assert not [one for one in server.world.requests if one[0] == "GET" and one[1] in ("/kernel", "/initrd")]
    if kind == "endless":
        assert f"goes on after the {len(INITRD)} bytes" in found["sentence"]


def test_a_disk_that_is_full_when_a_download_is_noted(server: Server, scratch: Scratch, zipapp: Path) -> None:
    """There is room for the files, and none for one more of them: no inode is left."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine gives nobody a mount namespace")
    place = scratch.rhel().put("boot/discovery/nothing", "").parent
    full = 'mount -t tmpfs -o size=64m,nr_inodes=1 tmpfs "$1" && shift && exec "$@"'
    server.world.answers = [answer(download_step(server, scratch), ends=True)]
    under = ("unshare", "-rm", "sh", "-ec", full, "sh", str(place))
    run_agent(server, scratch, zipapp, under, PATIENCE_SECONDS="600")
    (result,) = server.world.results
    assert json.loads(result["output"]) == {"reason": "NoSpace"}
    assert result["error"].startswith("vmlinuz.part.json could not be written: No space left on device.")


def small_boot(size: str, more: str) -> tuple[str, ...]:
    """Runs what follows with a /boot of this size, with what was in it and what `more` puts there."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine gives nobody a mount namespace")
    script = f'cp -a "$1" "$1.kept"; mount -t tmpfs -o size={size} tmpfs "$1"; cp -a "$1.kept/." "$1"; cd "$1"; {more}'
    return ("unshare", "-rm", "sh", "-ec", f'{script}; shift; exec "$@"', "sh")


def test_a_file_of_an_earlier_attempt_is_no_room_for_the_new_one(
    server: Server, scratch: Scratch, zipapp: Path
) -> None:
    """The new one is written beside it: 8.4 MB stay free, 1.3 MB are for the initrd, and 9 MB are there."""
    scratch.rhel()
    old = f"mkdir discovery; head -c {len(INITRD)} /dev/zero > discovery/{INFRA_ENV}-initrd.img"
    under = (*small_boot("10m", old), str(scratch.root / "boot"))
    server.world.answers = [answer(download_step(server, scratch)), answer(ends=True)]
    run_agent(server, scratch, zipapp, under)
    (result,) = server.world.results
    assert (result["exit_code"], json.loads(result["output"])) == (1, {"reason": "NoSpace"})
    assert "free and 10 MB are needed; remove old kernels from it." in result["error"]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_rollback_deployment_makes_room_where_that_is_allowed(
    server: Server, scratch: Scratch, zipapp: Path, allowed: bool
) -> None:
    scratch.rhcos().put("usr/bin/rpm-ostree", "")
    under = (*small_boot("14m", "head -c 6000000 /dev/zero > rollback"), str(scratch.root / "boot"))
    server.world.answers = [answer(download_step(server, scratch)), answer(ends=True)]
    run_agent(server, scratch, zipapp, under, CLEAN_BOOT="true" if allowed else "")
    (result,) = server.world.results
    if allowed:
        assert (result["exit_code"], json.loads(result["output"])["cleaned"]) == (0, True), result["error"]
        assert scratch.commands == ["rpm-ostree cleanup --rollback"]
        return
    assert json.loads(result["output"]) == {"reason": "NoSpace"}
    assert "or set HOSTLER_RECLAIM_CLEAN_BOOT=true to let the agent remove the rollback deployment" in result["error"]
    assert scratch.commands == []


@pytest.mark.parametrize("kind", ["reset", "short"])
def test_a_broken_download_goes_on_where_it_broke(server: Server, scratch: Scratch, zipapp: Path, kind: str) -> None:
    server.world.faults["/initrd"] = Fault(kind, times=3)
    reclaim(server, scratch.rhel(), zipapp)
    ranges = [range_ for method, path, range_, _ in server.world.requests if (method, path) == ("GET", "/initrd")]
    assert len(ranges) == 4
    # A reset takes with it what was not read yet, which may be all of it.
    starts = [int(one.removeprefix("bytes=").rstrip("-") or 0) for one in ranges[1:]]
    assert starts == sorted(starts)
    if kind == "short":
        assert starts[0] == len(INITRD) // 2
    assert (scratch.root / f"boot/discovery/{INFRA_ENV}-initrd.img").read_bytes() == INITRD


@pytest.mark.parametrize("heedless", [True, False])
def test_pieces_of_two_files_are_not_put_together(
    server: Server, scratch: Scratch, zipapp: Path, heedless: bool
) -> None:
    server.world.heedless = heedless
    server.world.faults["/initrd"] = Fault("changes", times=1)
    reclaim(server, scratch.rhel(), zipapp)
    assert (scratch.root / f"boot/discovery/{INFRA_ENV}-initrd.img").read_bytes() == INITRD[::-1]


@pytest.mark.parametrize("kind", ["no-head", "moved", "503"])
def test_servers_with_habits(server: Server, scratch: Scratch, zipapp: Path, kind: str) -> None:
    server.world.faults["/kernel"] = Fault(kind, times=2 if kind == "503" else 10**9)
    reclaim(server, scratch.rhel(), zipapp)


def test_a_server_that_is_busy_for_long_is_waited_for(server: Server, scratch: Scratch, zipapp: Path) -> None:
    """Longer than six attempts, and as it says itself; the stage's time is the bound."""
    server.world.faults = {"/kernel": Fault("503", times=7), "/initrd": Fault("busy", times=2)}
    begun = time.monotonic()
    reclaim(server, scratch.rhel(), zipapp, PATIENCE_SECONDS="600")
    assert time.monotonic() - begun >= 2


def test_an_end_that_is_not_heard_is_said_again(server: Server, scratch: Scratch, zipapp: Path) -> None:
    scratch.rhel()
    server.world.answers = [answer(reboot_step(scratch), ends=True)]
    server.world.deaf = 7
    run_agent(server, scratch, zipapp)
    (result,) = server.world.results
    assert json.loads(result["output"]) == {"reason": "EntryNotVerifiable"}


def test_hashes_are_checked_where_given(server: Server, scratch: Scratch, zipapp: Path) -> None:
    scratch.rhel()
    step = download_step(server, scratch, initrd_sha256="0" * 64)
    server.world.answers = [answer(step), answer(ends=True)]
    found = failed(server, scratch, zipapp)
    assert found["reason"] == "WrongHash"
    server.world.reports.clear()
    step = download_step(server, scratch, initrd_sha256=hashlib.sha256(INITRD).hexdigest())
    server.world.answers = [answer(step), answer(reboot_step(scratch), ends=True)]
    run_agent(server, scratch, zipapp)
    assert [one["exit_code"] for one in server.world.results] == [0, 0]
    assert json.loads(server.world.results[0]["output"])["unverified"] == ["kernel"]


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, scratch: Scratch, zipapp: Path) -> None:
    (tmp_path / "files").mkdir()
    hub, files = Server(tmp_path, tls=True), Server(tmp_path / "files", tls=True)
    try:
        hub.world.answers = [answer(download_step(files, scratch.rhel())), answer(ends=True)]
        found = failed(hub, scratch, zipapp)
        assert found["reason"] == "UntrustedCertificate"
        assert "HUB_CA" in found["sentence"]
        other = tmp_path / "other.pem"
        other.write_bytes(Authority("another").certificate)
        process = start_agent(hub, scratch, zipapp, CA_FILE=str(other))
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=60)
        assert "the hub's certificate is not trusted" in line
        assert not [one for one in hub.world.requests if one[3] and one[0] == "POST"][1:]
    finally:
        hub.close()
        files.close()


def test_memory_stays_under_thirty_megabytes_over_tls(tmp_path: Path, scratch: Scratch, zipapp: Path) -> None:
    server = Server(tmp_path, tls=True)
    try:
        server.world.files["/initrd"] = INITRD * 50  # 64 MB
        server.world.answers = [answer(download_step(server, scratch.rhel())), answer()]
        process = start_agent(server, scratch, zipapp)
        deadline = time.monotonic() + 120
        while not server.world.results and time.monotonic() < deadline:
            time.sleep(0.1)
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
        process.communicate(timeout=60)
        assert [one["exit_code"] for one in server.world.results] == [0]
        peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])
        print(f"peak memory of the agent: {peak / 1024:.1f} MB")
        assert peak < 30 * 1024
    finally:
        server.close()


@pytest.mark.parametrize("name", ["rhel", "grub214", "rhcos", "static214", "debian", "systemd-boot", "zipl"])
def test_booted_back_is_said_once_and_everything_taken_back(
    server: Server, scratch: Scratch, zipapp: Path, name: str
) -> None:
    before = snapshot(dialect(scratch, name))
    if name == "systemd-boot":
        scratch.put("boot/loader/loader.conf", "default 6f3c-*\n")
        before = snapshot(scratch)
    reclaim(server, scratch, zipapp)
    assert snapshot(scratch) != before
    if name == "systemd-boot":
        entries = scratch.root / "boot/loader/entries"
        assert (entries / "assisted-discovery.conf").exists()
    server.world.reports.clear()
    scratch.put("proc/sys/kernel/random/boot_id", "22222222-2222-4222-8222-222222222222\n")
    server.world.answers = [answer(reboot_step(scratch), ends=True)]
    run_agent(server, scratch, zipapp)
    (result,) = server.world.results
    assert json.loads(result["output"]) == {"reason": "BootedBack"}
    assert BOOT_ID in result["error"]
    assert scratch.commands.count("systemctl reboot") == 1
    assert snapshot(scratch) == before


def test_no_reboot_without_our_entry(server: Server, scratch: Scratch, zipapp: Path) -> None:
    """A pod that ended took its entry back; the next one must not restart the host into nothing."""
    scratch.rhel()
    server.world.answers = [answer(reboot_step(scratch), ends=True)]
    run_agent(server, scratch, zipapp)
    (result,) = server.world.results
    assert json.loads(result["output"]) == {"reason": "EntryNotVerifiable"}
    assert scratch.commands == []


def test_a_failed_reboot_is_said_and_taken_back(server: Server, scratch: Scratch, zipapp: Path) -> None:
    before = snapshot(scratch.rhel(saved_entry="ostree-2"))
    scratch.put("fails-systemctl", "")
    server.world.answers = [answer(download_step(server, scratch)), answer(reboot_step(scratch), ends=True)]
    run_agent(server, scratch, zipapp)
    assert [one["exit_code"] for one in server.world.results] == [0, 1]
    assert json.loads(server.world.results[1]["output"]) == {"reason": "RebootFailed"}
    assert "systemctl was told to fail" in server.world.results[1]["error"]
    assert snapshot(scratch) == before


def armed(scratch: Scratch) -> bool:
    """Whether the next boot of the host would be discovery."""
    env = grub_environment.parse((scratch.root / "boot/grub2/grubenv").read_bytes())
    return env.get("next_entry") == "00-assisted-discovery"


@contextmanager
def living(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end, if it is still there."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def ended(process: subprocess.Popen[str]) -> int:
    """As a kubelet ends a pod's process."""
    process.terminate()
    return process.wait(timeout=60)


def look_until(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 90
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("then", ["the reclaim is over", "the hub goes on", "the hub is silent"])
def test_killed_between_entry_and_report(server: Server, scratch: Scratch, zipapp: Path, then: str) -> None:
    """The host is left armed by a killed agent; the next one goes on as the hub says, or takes the entry back."""
    before = snapshot(scratch.rhel())
    server.world.answers = [answer(download_step(server, scratch))]
    server.world.deaf = 10**9
    with living(start_agent(server, scratch, zipapp)):
        look_until(lambda: server.world.deaf < 10**9, "the report, which is not heard")
    assert armed(scratch)
    server.world.deaf = 0
    if then == "the hub goes on":
        reclaim(server, scratch, zipapp)
        assert (armed(scratch), scratch.commands) == (True, ["systemctl reboot"])
        return
    server.world.answers = [answer(ends=True) if then == "the reclaim is over" else {"nonsense": 1}]
    with living(start_agent(server, scratch, zipapp, STAY="true", SILENCE_SECONDS="0.5")) as process:
        look_until(lambda: not (scratch.root / "boot/discovery").exists(), "everything is taken back")
        assert snapshot(scratch) == before
        assert process.poll() is None, "a DaemonSet's pod waits to be ended"
        assert ended(process) == 0
    assert (server.world.results, scratch.commands) == ([], [])


@contextmanager
def restarted(server: Server, scratch: Scratch, zipapp: Path, seconds: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that told its host to restart, and lives on."""
    server.world.answers = [answer(download_step(server, scratch)), answer(reboot_step(scratch), ends=True)]
    with living(start_agent(server, scratch, zipapp, STAY="true", RESTART_SECONDS=seconds)) as process:
        look_until(lambda: len(server.world.results) >= 2, "the restart")
        assert scratch.commands == ["systemctl reboot"]
        yield process
    assert scratch.commands == ["systemctl reboot"]


def test_a_restart_that_never_comes_is_said_and_taken_back(server: Server, scratch: Scratch, zipapp: Path) -> None:
    before = snapshot(scratch.rhel())
    with restarted(server, scratch, zipapp, "1") as process:
        look_until(lambda: len(server.world.results) == 3, "that it did not come")
        assert ended(process) == 0
    last = server.world.results[-1]
    assert (last["exit_code"], json.loads(last["output"])) == (1, {"reason": "RebootFailed"})
    assert "and did not" in last["error"]
    assert snapshot(scratch) == before


@pytest.mark.parametrize(("hub_says", "stays"), [("restart", True), ("over", False), ("nothing", True)])
def test_an_agent_ended_after_the_restart_began_asks_whether_it_is_still_wanted(
    server: Server, scratch: Scratch, zipapp: Path, hub_says: str, stays: bool
) -> None:
    """The host's going down ends it too, and the entry stays; a reclaim that timed out or was cancelled is over."""
    before = snapshot(scratch.rhel())
    with restarted(server, scratch, zipapp, "600") as process:
        if hub_says != "restart":
            server.world.answers = [answer(ends=True) if hub_says == "over" else {"nonsense": 1}]
        assert ended(process) == 0
    assert (armed(scratch), snapshot(scratch) == before) == (stays, not stays)


@pytest.mark.parametrize("step", ["download", "reboot"])
@pytest.mark.parametrize(("told", "reason"), [("another-boot", "BootedBack"), ("", "BadArguments")])
def test_another_boot_or_an_unknown_one_is_not_gone_on_in(
    server: Server, scratch: Scratch, zipapp: Path, step: str, told: str, reason: str
) -> None:
    before = snapshot(scratch.rhel())
    asked = download_step(server, scratch) if step == "download" else reboot_step(scratch)
    server.world.answers = [answer(asked, ends=True)]
    run_agent(server, scratch, zipapp, EXPECTED_BOOT_ID=told)
    (result,) = server.world.results
    assert (result["exit_code"], json.loads(result["output"])) == (1, {"reason": reason})
    assert not [one for one in server.world.requests if one[1] in ("/kernel", "/initrd")]
    assert (snapshot(scratch), scratch.commands) == (before, [])


def test_a_cancelled_pod_takes_its_entry_back(server: Server, scratch: Scratch, zipapp: Path) -> None:
    before = snapshot(scratch.rhel())
    server.world.answers = [answer(download_step(server, scratch)), answer()]
    process = start_agent(server, scratch, zipapp)
    deadline = time.monotonic() + 60
    while not server.world.results and time.monotonic() < deadline:
        time.sleep(0.05)
    assert snapshot(scratch) != before
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert snapshot(scratch) == before


def test_killed_in_mid_download_the_next_one_has_waited_and_goes_on(
    server: Server, scratch: Scratch, zipapp: Path
) -> None:
    scratch.rhel()
    server.world.slow = 0.02
    server.world.answers = [answer(download_step(server, scratch))]
    part = scratch.root / f"boot/discovery/{INFRA_ENV}-initrd.img.part"
    with living(start_agent(server, scratch, zipapp)):
        look_until(lambda: part.exists() and part.stat().st_size > 200_000, "half of it")
        server.world.slow = 600
        # Two of them would write into the same file.
        second = start_agent(server, scratch, zipapp)
        assert second.stderr is not None
        assert "Another agent is at work" in second.stderr.readline()
        server.world.requests.clear()
        server.world.answers = [answer(download_step(server, scratch)), answer(reboot_step(scratch), ends=True)]
    server.world.slow = 0
    _, said = second.communicate(timeout=120)
    assert [one["exit_code"] for one in server.world.results] == [0, 0], said
    resumed = [range_ for _, path, range_, _ in server.world.requests if path == "/initrd" and range_]
    assert resumed, "the second process started from the beginning"
    assert (scratch.root / f"boot/discovery/{INFRA_ENV}-initrd.img").read_bytes() == INITRD


@pytest.mark.parametrize("found", ["nothing", "two", "no entries", "no custom.cfg", "bad grubenv"])
def test_a_loader_that_is_not_understood_is_left_alone(
    server: Server, scratch: Scratch, zipapp: Path, found: str
) -> None:
    if found == "nothing":
        scratch.put("boot/readme", "")
    elif found == "two":
        scratch.systemd_boot().put("boot/grub/grub.cfg", "menuentry 'x' {}\n")
    elif found == "no entries":
        scratch.rhel()
        (scratch.root / "boot/loader/entries/ostree-2.conf").unlink()
    elif found == "no custom.cfg":
        scratch.debian().put("boot/grub/grub.cfg", "menuentry 'x' {}\n")
    else:
        scratch.rhel().put("boot/grub2/grubenv", "x" * 1024)
    assert failed(server, scratch, zipapp)["reason"] == "UnknownBootloader"


def test_the_firmware_decides_between_two_loaders(server: Server, scratch: Scratch, zipapp: Path) -> None:
    scratch.systemd_boot().put("boot/grub/grub.cfg", "menuentry 'x' {}\n")
    scratch.variable("LoaderInfo", "systemd-boot 252.30")
    assert reclaim(server, scratch, zipapp)["loader"] == "systemd-boot"


def test_an_entry_the_loader_would_not_choose_is_refused(server: Server, scratch: Scratch, zipapp: Path) -> None:
    """bootctl says yes and does nothing: re-reading finds it."""
    scratch.systemd_boot().put("boot/loader/loader.conf", "default 6f3c-*\n")
    (scratch.root / "commands.sh").write_text("#!/bin/sh\nexit 0\n")
    found = failed(server, scratch, zipapp)
    assert found["reason"] == "EntryNotVerifiable"
    assert "would start 6f3c-6.1.0.conf" in found["sentence"]


@pytest.mark.parametrize("name", ["rhel", "debian", "systemd-boot"])
def test_what_is_no_kernel_is_not_started(server: Server, scratch: Scratch, zipapp: Path, name: str) -> None:
    """A page that says sorry with status 200: GRUB would wait in its menu for a person."""
    server.world.files["/kernel"] = b"<html>sorry</html>" * 100
    found = failed(server, dialect(scratch, name), zipapp)
    assert found["reason"] == "EntryNotVerifiable"
    assert "<html>" in found["sentence"]


@pytest.mark.parametrize("argument", ["a\nlinux /evil", "a$b", "\x00"])
def test_kernel_arguments_that_break_the_entry_are_refused(
    server: Server, scratch: Scratch, zipapp: Path, argument: str
) -> None:
    step = download_step(server, scratch.rhel(), kernel_arguments=[{"operation": "append", "value": argument}])
    server.world.answers = [answer(step), answer(ends=True)]
    assert failed(server, scratch, zipapp)["reason"] == "BadArguments"


def test_a_hub_that_is_away_or_says_no_is_asked_again(server: Server, scratch: Scratch, zipapp: Path) -> None:
    refusals = [{"status": 401}, {"status": 403}, {"status": 500}, {"nonsense": 1}]
    server.world.answers = [*refusals, answer(download_step(server, scratch.rhel())), answer(ends=True)]
    said = run_agent(server, scratch, zipapp)
    assert said.count("No instructions") == 4
    assert [one["exit_code"] for one in server.world.results] == [0]
