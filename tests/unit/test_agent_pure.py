"""The agent's rules without a disk: orders of boot loaders, grubenv, quoting, signatures; tables and fuzz."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from email.message import Message
from functools import cmp_to_key
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs7
from hypothesis import given, settings
from hypothesis import strategies as st

import hostler.agent
from hostler.agent import boot_entry, executor, kernel_arguments, secure_boot, steps
from hostler.agent.executor import Executor
from hostler.agent.fetch import _remote, check_url
from hostler.agent.host import Host
from hostler.agent.hub import NoAnswer, Step
from hostler.agent.loaders import bls, grub_config, grub_environment
from hostler.agent.loaders.bls import compare_files, compare_rpm, compare_systemd
from hostler.agent.loaders.detection import detect_loader
from hostler.agent.loaders.grub import Grub, GrubState
from hostler.agent.loaders.grub_bls import LAST, LAST_FILE, GrubRhel, GrubUpstream
from hostler.agent.loaders.grub_config import GrubConfig, read_config
from hostler.agent.loaders.grub_static import GrubStatic
from hostler.agent.loaders.loader import LOADER_VENDOR
from hostler.agent.loaders.systemd_boot import SystemdBoot
from hostler.agent.loaders.zipl import Zipl
from hostler.agent.refusal import Reason, Refusal
from hostler.agent.runner import Runner
from hostler.agent.secure_boot import check_signer
from tests.sizes import examples
from tests.tools import not_here, tool
from tests.unit.kube_pki import Authority

names = st.text(alphabet="abzAZ019.-_~+", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1.0", "1.0", 0), ("1.0", "2.0", -1), ("2.0.1", "2.0", 1), ("5.5p2", "5.5p10", -1), ("10xyz", "10.1xyz", -1),
        ("xyz10", "xyz10.1", -1), ("1.0~rc1", "1.0", -1), ("1.0^git1", "1.0", 1), ("1.0^git1", "1.0.1", -1),
        ("1.0~rc1^git1", "1.0~rc1", 1), ("a", "1", -1), ("999", "5.14.0-284.el9", 1), ("999", "9999", -1),
        ("2_0", "2.0", 0), ("FC5", "fc4", -1),
    ],
)  # fmt: skip
def test_versions_as_rpm_compares_them(one: str, other: str, expected: int) -> None:
    assert sign(compare_rpm(one, other)) == expected
    assert sign(compare_rpm(other, one)) == -expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("123", "123~", 1), ("123-a", "123", 1), ("123.a", "123-a", 1), ("123^", "123", 1), ("122.1", "123~rc1-1", -1),
        ("6.1.0", "6.1.10", -1), ("a", "1", -1), ("11α", "11β", 0),
    ],
)  # fmt: skip
def test_versions_as_systemd_compares_them(one: str, other: str, expected: int) -> None:
    assert sign(compare_systemd(one, other)) == expected
    assert sign(compare_systemd(other, one)) == -expected


@given(st.lists(names, min_size=2, max_size=8, unique=True))
def test_file_names_are_ordered_as_gnu_orders_them(found: list[str]) -> None:
    """GRUB 2.14 has GNU's own filevercmp; so has sort -V of coreutils."""
    found = [name for name in found if not name.startswith(".")]
    ours = sorted(found, key=cmp_to_key(compare_files))
    told = subprocess.run(
        ["sort", "-V"],
        input="\n".join(found),
        capture_output=True,
        text=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    assert ours == told.stdout.split()


@given(names, names, names)
def test_every_order_is_an_order(a: str, b: str, c: str) -> None:
    for compare in (compare_rpm, compare_files, compare_systemd):
        assert sign(compare(a, b)) == -sign(compare(b, a))
        assert compare(a, a) == 0
        if compare(a, b) <= 0 and compare(b, c) <= 0:
            assert compare(a, c) <= 0


def test_the_published_name_wins_in_rhel_and_loses_in_2_14() -> None:
    installed = bls.parse("ostree-2.conf", "version 5.14.0\nlinux /x\n")
    ours = bls.parse("00-assisted-discovery.conf", "version 999\nlinux /y\n")
    renamed = bls.parse("zz-assisted-discovery.conf", "version 999\nlinux /y\n")
    assert bls.order_rhel([installed, ours])[0] is ours
    assert bls.order_grub([installed, ours])[0] is installed
    assert bls.order_grub([installed, renamed])[0] is renamed


@given(st.lists(names, min_size=1, max_size=6), st.sampled_from(["0-rescue", "1", "5.14.0-284.el9"]))
def test_the_entry_of_our_block_is_behind_every_installed_one(installed: list[str], version: str) -> None:
    """By whichever rule GRUB orders them: what is started when nothing is named stays the installed system."""
    found = [  # no installed system has a name like ours: with a tilde before any letter or digit
        bls.parse(f"{name}.conf", f"version {version}\nlinux /x\n")
        for name in installed
        if name[0] != "." and not name.lstrip(".-_+").startswith("~")
    ]
    ours = bls.parse(LAST_FILE, GrubRhel.render("/k", "/i", [], LAST))
    for order in (bls.order_rhel, bls.order_rhel_names, bls.order_grub):
        assert order([ours, *found])[-1] is ours


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load_env\nblscfg\nsource $prefix/custom.cfg\n", GrubConfig(False, False, "custom.cfg", True)),
        ("  source ${config_directory}/custom.cfg\nmenuentry 'x' {}\n", GrubConfig(False, False, "custom.cfg", False)),
        ("# next_entry custom.cfg\nblscfg\n", GrubConfig(False, False, "", False)),
        ("if [ -f $prefix/custom.cfg ]; then\nfi\nblscfg\n", GrubConfig(False, False, "", False)),
        ("source ${prefix}/user.cfg\nblscfg\n", GrubConfig(False, False, "user.cfg", False)),
        ('set default="${next_entry}"\nset default="${saved_entry}"\n', GrubConfig(True, True, "", False)),
        ('blscfg\nsource "$prefix/custom.cfg"\n', GrubConfig(False, False, "custom.cfg", True)),
        ('blscfg; . "${prefix}"/custom.cfg;\n', GrubConfig(False, False, "custom.cfg", True)),
        (
            "if [ -f $prefix/custom.cfg ]; then source $prefix/custom.cfg; fi\nblscfg\n",
            GrubConfig(False, False, "custom.cfg", False),
        ),
        ("if true\nthen true; else source $prefix/user.cfg; fi\n", GrubConfig(False, False, "user.cfg", True)),
        ("menuentry 'a; source $prefix/custom.cfg' {}\n", GrubConfig(False, False, "", False)),
        ("true; # ; source $prefix/custom.cfg\n", GrubConfig(False, False, "", False)),
        ("source '$prefix/custom.cfg'\n", GrubConfig(False, False, "", False)),
        # A default that is set after the file was read overrides what a block there chooses.
        ("source $prefix/user.cfg\nset default=0\nblscfg\n", GrubConfig(False, False, "", False, "user.cfg")),
        ("source $prefix/custom.cfg\nif x; then default=1; fi\n", GrubConfig(False, False, "", False, "custom.cfg")),
        ("set default=0\nsource $prefix/user.cfg\nblscfg\n", GrubConfig(False, False, "user.cfg", False)),
        (
            "source $prefix/custom.cfg\nset default=0\nsource $prefix/user.cfg\n",
            GrubConfig(False, False, "user.cfg", True),
        ),
        (
            "source $prefix/custom.cfg\nset default=0\nsource $prefix/custom.cfg\n",
            GrubConfig(False, False, "", False, "custom.cfg"),
        ),
        ('source $prefix/custom.cfg\nset default="${next_entry}"\n', GrubConfig(True, False, "custom.cfg", True)),
    ],
)
def test_what_a_grub_cfg_does_with_an_entry_for_one_boot(text: str, expected: GrubConfig) -> None:
    assert read_config(text) == expected


def test_a_spent_entry_of_systemd_boot_is_last() -> None:
    fresh, spent = "assisted-discovery+1.conf", "assisted-discovery+0-1.conf"
    installed = bls.parse("debian.conf", "sort-key debian\n")
    assert bls.order_systemd([installed, bls.parse(fresh, "sort-key 00\n")])[0].file == fresh
    assert bls.order_systemd([bls.parse(spent, "sort-key 00\n"), installed])[0] is installed
    assert bls.plain_name(spent) == "assisted-discovery.conf"


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.text(max_size=30), max_size=6))
def test_grubenv_survives_writing_and_reading(variables: dict[str, str]) -> None:
    variables = {name: value.encode("utf-8", "replace").decode() for name, value in variables.items()}
    block = grub_environment.render(variables)
    assert len(block) == grub_environment.SIZE
    assert grub_environment.parse(block) == variables


def test_grubenv_is_what_grubs_own_tool_reads_and_writes(tmp_path: Path) -> None:
    program = tool("grub-editenv", "grub-common")
    place = tmp_path / "grubenv"
    place.write_bytes(grub_environment.render({"saved_entry": "a b", "next_entry": "x=y"}))
    assert subprocess.check_output([program, str(place), "list"], text=True) == "saved_entry=a b\nnext_entry=x=y\n"
    subprocess.run([program, str(place), "set", "kernelopts=root=UUID=1 ro \\ end", "boot_success=1"], check=True)
    assert grub_environment.parse(place.read_bytes())["kernelopts"] == "root=UUID=1 ro \\ end"
    assert grub_environment.render(grub_environment.parse(place.read_bytes())) == place.read_bytes()


def test_a_full_grubenv_is_refused() -> None:
    with pytest.raises(Refusal, match="full"):
        grub_environment.render({"a": "b" * 1024})


@given(st.binary(max_size=1200))
def test_no_bytes_crash_the_parsers(junk: bytes) -> None:
    for block in (junk, grub_environment.HEADER + junk):
        with suppress(Refusal):
            grub_environment.parse(block)
    text = junk.decode("utf-8", "replace")
    entries = [bls.parse("a.conf", text), bls.parse("b.conf", f"version {text}\n{text}"), bls.parse("c+9.conf", text)]
    for order in (bls.order_systemd, bls.order_rhel, bls.order_rhel_names, bls.order_grub):
        assert sorted(one.file for one in order(entries)) == [one.file for one in entries]
    for word in ("menuentry ", "linux", "initrd ", "menuentry --id "):
        grub_config.parse_menuentry(f"{grub_config.BEGIN}\n{word}\n{text}\n{grub_config.END}")
    with suppress(Refusal):
        kernel_arguments.parse_arguments(text)


# Whatever is on a host's disk where boot loaders keep their things, and where we keep ours.
FILES = (
    "boot/grub2/grub.cfg", "boot/grub/grub.cfg", "boot/grub2/grubenv", "boot/grub/grubenv", "boot/grub/custom.cfg",
    "boot/loader/entries/a.conf", "boot/loader/entries/b+1-9.conf", "boot/loader/entries/00-assisted-discovery.conf",
    "boot/loader/loader.conf", "boot/EFI/systemd/systemd-bootx64.efi", "etc/zipl.conf", "proc/1/mountinfo",
    "boot/discovery/vmlinuz", f"sys/firmware/efi/efivars/LoaderInfo-{LOADER_VENDOR}",
    f"sys/firmware/efi/efivars/LoaderEntryDefault-{LOADER_VENDOR}",
)  # fmt: skip
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from([
            b"blscfg\n", b"load_env\nnext_entry saved_entry custom.cfg\n", grub_environment.HEADER, b"#" * 900,
            b"version 999\n", b"saved_entry=7\n", b"next_entry=00-assisted-discovery\n", b"next_entry=\\",
            b"linux /x\n", b"default *\n",
            b"sort-key \xff\n", b"36 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n", b"1 2 3 - \n", b"s\x00y\x00s\x00",
        ]),
        max_size=4,
    ).map(b"".join),
)  # fmt: skip
NOTES = st.sampled_from([
    b'{"grubenv": {"next_entry": 1}}', b'{"grubenv": []}', b'{"grubenv": {"a": "b"}}', b'{"entry": 5, "custom": {}}',
    b'{"custom": "/../../x", "oneshot": []}', b"[]", b'"x"', b"{", b'{"entry": "x"}', b"\xff", b"null",
])  # fmt: skip
GRUB = {
    "boot/grub2/grub.cfg": b"blscfg\nload_env\nnext_entry saved_entry\n", "boot/loader/entries/a.conf": b"version 1\n",
    "boot/grub2/grubenv": grub_environment.render({"saved_entry": "a"}),
}  # fmt: skip
PLAIN = {
    "boot/grub/grub.cfg": b"load_env\nnext_entry\nsource $prefix/custom.cfg\n",
    "boot/grub/grubenv": grub_environment.render({}),
}
SYSTEMD = {"boot/EFI/systemd/systemd-bootx64.efi": b"", "boot/loader/entries/a.conf": b"version 1\n"}


@settings(max_examples=examples(100))
@given(
    st.sampled_from([GRUB, PLAIN, SYSTEMD, {}]),
    st.dictionaries(st.sampled_from(FILES), CONTENTS, max_size=5),
    st.one_of(st.none(), NOTES),
)
def test_no_host_crashes_the_look_at_it_and_looking_changes_nothing(
    base: dict[str, bytes], junk: dict[str, bytes], note: bytes | None
) -> None:
    files = {**base, **junk, **({"boot/discovery/hostler.json": note} if note is not None else {})}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "host"
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        host = Host(root)
        boot_entry.find_armed(host)
        with suppress(Refusal):
            boot_entry.check_chosen(host)
        there = {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}
        assert there == files
        # Taking back what is no note of ours neither crashes nor leaves the host's root.
        with suppress(Refusal):
            boot_entry.undo_all(host, Executor(("true",)))
        assert [one.name for one in Path(folder).iterdir()] in (["host"], [])


@given(
    st.lists(st.text(min_size=1, max_size=20), max_size=4),
    st.sampled_from([SystemdBoot, GrubRhel, GrubUpstream, Zipl]),
)
def test_no_argument_can_add_a_line_to_an_entry(
    values: list[str], dialect: type[SystemdBoot | GrubRhel | GrubUpstream | Zipl]
) -> None:
    """Whatever the InfraEnv says, an entry has its own lines and no others."""
    try:
        words = kernel_arguments.compose_words(
            "http://h/r?a=1&b=2", [], [kernel_arguments.KernelArgument("append", one) for one in values]
        )
        text = dialect.render("/vmlinuz", "/initrd", words)
    except Refusal:
        return
    keys = [line.split(" ")[0] for line in text.split("\n")[:-1]]
    assert [key for key in keys if key != "sort-key"] == ["title", "version", "options", "linux", "initrd"]
    found = bls.parse("x.conf", text)
    assert (found.get("linux"), found.get("initrd")) == ("/vmlinuz", "/initrd")
    if dialect is GrubUpstream:
        assert (8 + len(b"/vmlinuz") + len(found.get("options").encode())) % 16


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30))
def test_grub_quoting_is_undone_by_a_shell(word: str) -> None:
    """GRUB's single quotes are the shell's."""
    import shlex

    assert shlex.split(kernel_arguments.quote_for_grub([word], expands=False)) == [word]


def test_kernel_arguments_of_the_infra_env() -> None:
    arguments = kernel_arguments.parse_arguments(
        [
            {"operation": "append", "value": "console=ttyS0"},
            {"operation": "delete", "value": "random.trust_cpu=on"},
            {"operation": "replace", "value": "ignition.platform.id=metal=nutanix"},
        ]
    )
    found = kernel_arguments.compose_words("", ["ro", "ip=dhcp", "quiet"], arguments)
    assert found == ["ignition.firstboot", "ignition.platform.id=nutanix", "panic=30", "ip=dhcp", "console=ttyS0"]


def test_a_discovery_kernel_that_dies_restarts_the_host() -> None:
    assert "panic=30" in kernel_arguments.compose_words("", [], [])


def test_no_sentence_has_what_an_address_keeps_to_itself() -> None:
    said = Refusal(Reason.DOWNLOAD_FAILED, "https://me:secret@images/kernel?token=secret answered 503 (6 attempts).")
    assert (said.sentence, str(said)) == ("https://images/kernel answered 503 (6 attempts).",) * 2
    assert str(NoAnswer("http://x/y?a=secret#b broke off")) == "http://x/y broke off"
    with pytest.raises(Refusal) as refused:
        check_url("http://images/kernel?token=a secret")
    assert "secret" not in refused.value.sentence


def test_a_pods_own_view_of_a_read_only_boot_is_writable_while_we_write(tmp_path: Path) -> None:
    """RHCOS: the host's mount is made writable, but the pod's view of it keeps its own flag."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine gives nobody a mount namespace")
    boot = tmp_path / "boot"
    boot.mkdir()
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(
        "20 1 8:1 / / rw - ext4 /dev/a rw\n21 20 8:2 / /boot ro - ext4 /dev/b ro\n"
    )
    code = """
import sys
from hostler.agent.boot_entry import make_writable
from hostler.agent.executor import Executor
from hostler.agent.host import Host
host = Host(sys.argv[1])
with make_writable(host, Executor(["true"]), "/boot/discovery"):
    host.write("/boot/discovery/vmlinuz", b"kernel")
"""
    script = 'mount --bind "$1/boot" "$1/boot" && mount -o remount,bind,ro "$1/boot" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", script, "sh", str(tmp_path), sys.executable, code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (boot / "discovery/vmlinuz").read_bytes() == b"kernel"


def test_the_owners_custom_cfg_is_kept() -> None:
    ours = GrubStatic.render("/k", "/i", ["a"])
    once = grub_config.with_block("set x=1", ours)
    assert grub_config.with_block(once, ours) == once
    assert grub_config.without_block(once) == "set x=1\n"


@pytest.mark.parametrize("name", ["custom.cfg", "user.cfg"])
def test_the_owners_file_keeps_its_mode_its_owner_and_every_byte(tmp_path: Path, name: str) -> None:
    """A user.cfg has the password of GRUB in it, and a title may be Latin-1."""
    grub = tmp_path / "boot/grub2"
    grub.mkdir(parents=True)
    (grub / "grub.cfg").write_text(f"blscfg\nsource $prefix/{name}\n")
    (tmp_path / "boot/loader/entries").mkdir(parents=True)
    (tmp_path / "boot/loader/entries/installed.conf").write_text("version 1\nlinux /vmlinuz\n")
    owned, before = grub / name, b"GRUB2_PASSWORD=grub.pbkdf2\r\nset title=Gr\xfc\xdfe\n"
    owned.write_bytes(before)
    owned.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(owned, 12, 34)
    access = access_of(owned)
    host = Host(tmp_path)
    loader = detect_loader(host)
    assert isinstance(loader, Grub)
    loader.write_block(grub_config.TAKE_NEXT)
    assert owned.read_bytes().startswith(before + grub_config.BEGIN.encode())
    assert access_of(owned) == access
    boot_entry.undo_entry(loader, Executor(["true"]))
    assert owned.read_bytes() == before
    assert access_of(owned) == access


class Signer:
    def __init__(self, name: str) -> None:
        pair = Authority(name).issue(name)
        self.certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.key = key

    def program(self) -> bytes:
        builder = (
            pkcs7.PKCS7SignatureBuilder().set_data(b"digest").add_signer(self.certificate, self.key, hashes.SHA256())
        )
        return program(builder.sign(serialization.Encoding.DER, [pkcs7.PKCS7Options.Binary]))


def program(signature: bytes) -> bytes:
    """The least an EFI program can be: headers and, if there is one, a signature at its end."""
    header = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + b"PE\0\0" + b"\0" * 20
    optional = struct.pack("<H", 0x20B).ljust(112, b"\0")
    table = struct.pack("<IHH", 8 + len(signature), 0x200, 2) + signature if signature else b""
    at = len(header) + len(optional) + 16 * 8
    directories = b"\0" * 32 + (struct.pack("<II", at, len(table)) if signature else b"\0" * 8)
    return header + optional + directories.ljust(16 * 8, b"\0") + table


def secure_host(root: Path, *, on: bool, kernel: bytes, installed: bytes) -> Host:
    variables = root / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(bytes([6, 0, 0, 0, on]))
    (root / "boot/discovery").mkdir(parents=True)
    (root / "boot/discovery/vmlinuz").write_bytes(kernel)
    (root / "boot/vmlinuz-6.1").write_bytes(installed)
    return Host(root)


def test_secure_boot_wants_a_signer_this_host_has_started_before(tmp_path: Path) -> None:
    vendor, stranger = Signer("vendor"), Signer("stranger")
    kernel = "/boot/discovery/vmlinuz"
    same = secure_host(tmp_path / "same", on=True, kernel=vendor.program(), installed=vendor.program())
    assert "same signer" in check_signer(same, kernel)
    off = secure_host(tmp_path / "off", on=False, kernel=program(b""), installed=b"")
    assert check_signer(off, kernel) == "Secure Boot is off."
    for name, ours in (("unsigned", program(b"")), ("stranger", stranger.program()), ("empty", b"")):
        host = secure_host(tmp_path / name, on=True, kernel=ours, installed=vendor.program())
        with pytest.raises(Refusal) as refused:
            check_signer(host, kernel)
        assert refused.value.reason is Reason.SECURE_BOOT


def test_secure_boot_that_cannot_be_seen_is_not_off(tmp_path: Path) -> None:
    (tmp_path / "sys/firmware/efi/efivars").mkdir(parents=True)
    with pytest.raises(Refusal, match="Cannot tell"):
        check_signer(Host(tmp_path), "/boot/discovery/vmlinuz")
    assert check_signer(Host(tmp_path / "bios"), "/x") == "Secure Boot is off."


@given(st.binary(max_size=400), st.booleans())
def test_no_program_crashes_the_look_at_its_signature(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, signed: bool
) -> None:
    place = tmp_path_factory.getbasetemp() / "program"
    place.write_bytes(program(junk) if signed else b"MZ" + junk)
    assert isinstance(secure_boot.find_signers(place), frozenset)
    assert isinstance(secure_boot.is_damaged(place), bool)


def signed_program(body: bytes) -> bytes:
    """A program of two sections in the wrong order, with a signature of its digest as Authenticode has it."""
    headers, half = 0x200, len(body) // 2
    start = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    coff = b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, 2, 0, 0, 0, 240, 0)
    sections = b"".join(
        name.ljust(8, b"\0") + struct.pack("<IIII", 0, 0, size, at) + bytes(16)
        for name, size, at in ((b".two", len(body) - half, headers + half), (b".one", half, headers))
    )
    place = len(start + coff) + 112 + 4 * 8  # of the signatures' address

    def whole(checksum: int, at: int, size: int) -> bytes:
        optional = struct.pack("<H58xI", 0x20B, headers) + struct.pack("<I", checksum)
        optional = optional.ljust(112 + 4 * 8, b"\0") + struct.pack("<II", at, size)
        return (start + coff + optional.ljust(240, b"\0") + sections).ljust(headers, b"\0") + body

    plain = whole(0, 0, 0)
    hashed = plain[: place - 80] + plain[place - 76 : place] + plain[place + 8 :]
    signer = Signer("vendor")
    builder = pkcs7.PKCS7SignatureBuilder().set_data(hashlib.sha256(hashed).digest())
    blob = builder.add_signer(signer.certificate, signer.key, hashes.SHA256()).sign(
        serialization.Encoding.DER, [pkcs7.PKCS7Options.Binary]
    )
    return whole(4711, len(plain), 8 + len(blob)) + struct.pack("<IHH", 8 + len(blob), 0x200, 2) + blob


def test_a_signed_kernel_that_is_damaged_is_known_by_its_signature(tmp_path: Path) -> None:
    place, whole = tmp_path / "vmlinuz", signed_program(bytes(range(256)) * 8)
    place.write_bytes(whole)
    assert not secure_boot.is_damaged(place)
    for at in (0x50, 0x1A0, 0x210, 0x700):  # headers, names of sections, the one and the other section
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert secure_boot.is_damaged(place), hex(at)
    place.write_bytes(whole[:0x700])
    assert secure_boot.is_damaged(place), "it ends before its signature"
    place.write_bytes(program(b""))
    assert not secure_boot.is_damaged(place), "without a signature nobody can tell"


def test_the_signature_of_this_machines_own_kernel_is_understood(tmp_path: Path) -> None:
    """One that somebody else signed, with their own tools."""
    kernels = [(one, one.read_bytes()) for one in sorted(Path("/boot").glob("vmlinuz-*"))]
    signed = [(one, whole) for one, whole in kernels if (secure_boot.place_of_signatures(whole) or (0, 0))[0]]
    if not signed:
        not_here("there is no signed kernel in /boot (Debian: apt-get install linux-image-cloud-amd64)")
    kernel, whole = signed[-1]
    assert not secure_boot.is_damaged(kernel)
    place, middle = tmp_path / "vmlinuz", len(whole) // 2
    place.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert secure_boot.is_damaged(place)


@pytest.mark.parametrize("value", ["\u00b2", "9" * 5000, "\u0663x", "", "1", "00-x", "x"])
def test_whatever_grubenv_names_an_entry_or_the_first_is_started(value: str) -> None:
    for rhel in (True, False):
        state = GrubState(True, True, {"next_entry": value, "saved_entry": value}, ("a", "b"), rhel)
        assert state.next() == ("b" if value == "1" else "a")
        assert GrubState(True, True, {"next_entry": value}, (), rhel).next() == ""


@pytest.mark.parametrize(
    ("said", "size"), [("10", 10), ("\u00b2", None), ("-1", None), ("1e3", None), ("9" * 5000, None), ("", None)]
)
def test_a_size_is_a_number_or_it_is_not_known(said: str, size: int | None) -> None:
    headers = Message()
    headers["Content-Length"] = said
    assert _remote(headers).size == size


def test_one_agent_at_a_time_is_at_work_on_a_host(tmp_path: Path) -> None:
    host = Host(tmp_path)
    asked: list[bool] = []

    def no_more() -> bool:
        asked.append(True)
        return len(asked) > 2

    with host.alone(no_more) as first, host.alone(no_more) as second:
        assert (first, second, len(asked)) == (True, False, 3)
    with host.alone(no_more) as third:
        assert third
    (tmp_path / "run/hostler-agent.lock").unlink()
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("no directory")
    with host.alone(no_more) as nowhere:
        assert nowhere, "the step says what is wrong with this host"


def test_a_full_disk_is_said_as_that(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/.entry.new").symlink_to("/dev/full")  # whatever is written there finds no space
    with pytest.raises(Refusal, match="Make room on it") as full:
        Host(tmp_path).write("/boot/entry", b"x" * 10)
    assert full.value.reason is Reason.NO_SPACE


def test_links_of_the_host_stay_in_the_host(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/passwd").symlink_to("/etc/passwd")
    (tmp_path / "boot/up").symlink_to("../../../../etc/passwd")
    (tmp_path / "boot/loop").symlink_to("loop")
    assert host.at("/boot/passwd") == tmp_path / "etc/passwd"
    assert host.at("/boot/up") == tmp_path / "etc/passwd"
    assert host.at("/../../etc") == tmp_path / "etc"
    with pytest.raises(Refusal, match="loop"):
        host.at("/boot/loop")


def test_the_agent_imports_the_standard_library_and_itself() -> None:
    for source in Path(next(iter(hostler.agent.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                known = module.split(".")[0] in sys.stdlib_module_names or module.startswith("hostler.agent")
                assert known, f"{source.name} imports {module}"


def test_a_command_that_cannot_be_started_is_a_refusal_whatever_the_cause() -> None:
    no_handle = cast(Any, [object()])
    done = subprocess.run(["true"], preexec_fn=lambda: executor._enter(no_handle), capture_output=True, text=True)
    assert (done.returncode, "the host's namespaces cannot be entered" in done.stderr) == (executor.NOT_ENTERED, True)

    class Broken(Executor):
        def _run(self, command: Sequence[str], patience: float) -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, preexec_fn=lambda: [][0], text=True, timeout=patience)

    with pytest.raises(Refusal, match="`true` could not be started on the host"):
        Broken().run("true")


def access_of(place: Path) -> tuple[int, int, int]:
    found = place.stat()
    return found.st_mode, found.st_uid, found.st_gid


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


def test_an_entry_that_cannot_be_seen_is_not_one_that_was_taken_back(tmp_path: Path) -> None:
    """A boot partition may be out of sight for a while; the entry on it is found by the next restart all the same."""
    boot, away = tmp_path / "boot", tmp_path / "away"
    (boot / "grub2").mkdir(parents=True)
    (boot / "grub2/grub.cfg").write_text("source custom.cfg")
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    nobody = cast(Any, None)

    def runner() -> Runner:
        made = Runner(Host(tmp_path), nobody, nobody, nobody, nobody, threading.Event())
        made.stopping.set()
        return made

    unarmed = runner()
    unarmed.run()
    assert unarmed._leave(), "there is nothing, and that can be seen"
    (boot / "discovery").mkdir()
    known = runner()
    known.armed = boot_entry.find_armed(known.host)
    asked = runner()
    with suppress(Refusal, AttributeError, OSError):
        asked._perform(Step(steps.REBOOT, "s", {}))
    asked.restarting = None
    boot.rename(away)
    assert unarmed._leave()
    assert not known._leave()
    assert not asked._leave()
    (tmp_path / "efi/EFI/systemd").mkdir(parents=True)
    (tmp_path / "efi/EFI/systemd/systemd-bootx64.efi").touch()
    assert not known._leave(), "it is looked for where it was"
    shutil.rmtree(tmp_path / "efi")
    away.rename(boot)
    assert known._leave()
    assert not (boot / "discovery").exists()
    assert asked._leave()
    assert known.armed is None
