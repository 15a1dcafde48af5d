"""Just enough of EFI programs to see who signed them: the certificate table, and the certificates inside it."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path


def signers(program: Path) -> frozenset[bytes]:
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


def _signatures(program: mmap.mmap) -> Iterator[bytes]:
    try:
        if program[:2] != b"MZ":
            return
        (header,) = struct.unpack_from("<I", program, 0x3C)
        if program[header : header + 4] != b"PE\0\0":
            return
        optional = header + 24
        (magic,) = struct.unpack_from("<H", program, optional)
        directories = optional + (112 if magic == 0x20B else 96)
        offset, size = struct.unpack_from("<II", program, directories + 4 * 8)
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
        wrapped = [one for one in _children(blob, content[1], content[2]) if one[0] == 0xA0]
        signed = next(iter(_children(blob, wrapped[0][1], wrapped[0][2])))
        fields = [one for one in _children(blob, signed[1], signed[2]) if one[0] == 0xA0]
        return [blob[one[3] : one[2]] for one in _children(blob, fields[0][1], fields[0][2]) if one[0] == 0x30]
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
