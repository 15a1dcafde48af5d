"""With Secure Boot on, a kernel the firmware's chain does not trust leaves the host in its boot menu. So look first.

Of EFI programs just enough is read to see who signed them, and whether they still are what was signed.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hostler.agent.host import Host
from hostler.agent.loaders.loader import EFIVARS
from hostler.agent.refusal import Reason, Refusal

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"


def is_on(host: Host) -> bool:
    """Whether the firmware checks signatures. Firmware whose variables cannot be seen is a refusal, not a no."""
    if not host.is_dir("/sys/firmware/efi"):
        return False
    if not host.names(EFIVARS):
        raise Refusal(Reason.SECURE_BOOT, "Cannot tell whether Secure Boot is on: the host's efivars are not mounted.")
    raw = host.read(f"{EFIVARS}/SecureBoot-{GLOBAL}")
    return raw is not None and raw[4:5] == b"\x01"


def check_signer(host: Host, kernel: str) -> str:
    """Refuse a kernel that this host would not start; otherwise say why it would.

    The chain of trust itself (db, shim, MOK) is not replayed. What is known to start here is the installed kernel: a
    discovery kernel signed with one of the certificates in its signature starts too.
    """
    if not is_on(host):
        return "Secure Boot is off."
    ours = find_signers(host.at(kernel))
    if not ours:
        raise Refusal(
            Reason.SECURE_BOOT,
            "Secure Boot is on and the discovery kernel is not signed; the host would stop in its boot menu.",
        )
    for installed in find_installed_kernels(host):
        if ours & find_signers(host.at(installed)):
            return f"Secure Boot is on; the discovery kernel has the same signer as {installed}."
    raise Refusal(
        Reason.SECURE_BOOT,
        "Secure Boot is on and the discovery kernel is signed by none of the keys that signed this host's kernels; the "
        "host would stop in its boot menu.",
    )


def find_installed_kernels(host: Host) -> list[str]:
    """Kernels of the installed system: in /boot, below /boot/ostree, and where packages keep them."""
    found = [f"/boot/{name}" for name in host.names("/boot") if name.startswith("vmlinuz")]
    for deployment in host.names("/boot/ostree"):
        directory = f"/boot/ostree/{deployment}"
        found += [f"{directory}/{name}" for name in host.names(directory) if name.startswith("vmlinuz")]
    for version in host.names("/usr/lib/modules"):
        if host.is_file(f"/usr/lib/modules/{version}/vmlinuz"):
            found.append(f"/usr/lib/modules/{version}/vmlinuz")
    return found


_DIGESTS = ("sha256", "sha384", "sha512", "sha1")
_CHUNK, _MOST_SECTIONS = 128 * 1024, 96


def find_signers(program: Path) -> frozenset[bytes]:
    """Every X.509 certificate embedded in the signatures of an EFI program, as DER; empty where it is not signed."""
    found: set[bytes] = set()
    try:
        # Mapped, not read: a kernel is large, its headers and signatures are small.
        with open(program, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for blob in _signatures(mapped):
                found.update(_certificates(blob))
    except (ValueError, OSError):  # an empty file, or none
        return frozenset()
    return frozenset(found)


def is_damaged(program: Path) -> bool:
    """Whether an EFI program has a signature and is not what was signed; without one, nobody can tell.

    The digest in the signature is compared (Authenticode), not who made it: that is for the firmware to judge.
    """
    try:
        with open(program, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            place = place_of_signatures(mapped)
            if place is None or not place[0]:
                return False
            blobs, spans = list(_signatures(mapped)), list(_signed_spans(mapped))
    except (ValueError, OSError):  # an empty file, or none
        return False
    except struct.error:
        return True
    with open(program, "rb") as file:
        digests = _digests(file, spans)
    return not any(digest in blob for digest in digests for blob in blobs)


def _digests(file: BinaryIO, spans: list[tuple[int, int]]) -> list[bytes]:
    """Of these pieces of the file in their order; read piece by piece, for a kernel is large."""
    found = [hashlib.new(name, usedforsecurity=False) for name in _DIGESTS]
    for start, end in spans:
        file.seek(start)
        while start < end and (chunk := file.read(min(_CHUNK, end - start))):
            start += len(chunk)
            for digest in found:
                digest.update(chunk)
    return [digest.digest() for digest in found]


def _signed_spans(program: mmap.mmap) -> Iterator[tuple[int, int]]:
    """What is signed, as (start, end): all but the checksum, the place of the signatures, and they themselves."""
    (header,) = struct.unpack_from("<I", program, 0x3C)
    sections, size = struct.unpack_from("<H12xH", program, header + 6)
    if sections > _MOST_SECTIONS:
        raise struct.error("no program has so many sections")
    optional = header + 24
    magic, headers = struct.unpack_from("<H58xI", program, optional)
    place = optional + (112 if magic == 0x20B else 96) + 4 * 8
    (signatures,) = struct.unpack_from("<I", program, place)
    yield 0, optional + 64
    yield optional + 68, place
    yield place + 8, headers
    last = headers
    raw = [struct.unpack_from("<II", program, optional + size + 40 * section + 16) for section in range(sections)]
    for length, start in sorted(raw, key=lambda section: section[1]):
        if length:
            yield start, start + length
            last += length
    yield last, signatures


def place_of_signatures(program: bytes | mmap.mmap) -> tuple[int, int] | None:
    """Where they begin, and their size; zeros where it is not signed, None where it is no EFI program at all."""
    try:
        (header,) = struct.unpack_from("<I", program, 0x3C)
        if program[:2] != b"MZ" or program[header : header + 4] != b"PE\0\0":
            return None
        optional = header + 24
        (magic,) = struct.unpack_from("<H", program, optional)
        offset, size = struct.unpack_from("<II", program, optional + (112 if magic == 0x20B else 96) + 4 * 8)
    except struct.error:
        return None
    return offset, size


def _signatures(program: mmap.mmap) -> Iterator[bytes]:
    try:
        offset, size = place_of_signatures(program) or (0, 0)
        end = min(offset + size, len(program))
        while offset and offset + 8 <= end:
            length, _, kind = struct.unpack_from("<IHH", program, offset)
            if length < 8 or offset + length > end:
                return
            if kind == 2:  # PKCS#7
                yield program[offset + 8 : offset + length]
            offset += (length + 7) // 8 * 8
    except struct.error:
        return


def _certificates(blob: bytes) -> list[bytes]:
    """The certificates field of a PKCS#7 SignedData: ContentInfo > [0] > SignedData > [0]."""
    try:
        content = next(iter(_children(blob, 0, len(blob))))
        wrapped = [element for element in _children(blob, content[1], content[2]) if element[0] == 0xA0]
        signed = next(iter(_children(blob, wrapped[0][1], wrapped[0][2])))
        fields = [element for element in _children(blob, signed[1], signed[2]) if element[0] == 0xA0]
        return [
            blob[element[3] : element[2]]
            for element in _children(blob, fields[0][1], fields[0][2])
            if element[0] == 0x30
        ]
    except (IndexError, StopIteration):
        return []


def _children(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, start of value, end of value, start of element) of the DER elements in a range."""
    while start < end:
        tag, length, value = data[start], data[start + 1], start + 2
        if length & 0x80:
            octets = length & 0x7F
            length = int.from_bytes(data[value : value + octets], "big")
            value += octets
        if value + length > end:
            raise IndexError("an element is longer than what holds it")
        yield tag, value, value + length, start
        start = value + length
