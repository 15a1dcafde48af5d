"""System calls that Python 3.11's standard library lacks. Python 3.12 has setns; mount it never had."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Looked up now: nothing can be imported or loaded any more once a process has entered the host's mount namespace.
_LIBC = ctypes.CDLL(None, use_errno=True)
_SETNS, _MOUNT = _LIBC.setns, _LIBC.mount
_MS_REMOUNT, _MS_BIND = 32, 4096
# What statvfs says of a mount is, bit by bit, what mount(2) takes; a remount drops whatever is not given again.
_KEPT = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME


def enter_namespace(handle: int) -> None:
    """Move this process into the namespace that `handle`, an open file below /proc/PID/ns, stands for."""
    if _SETNS(handle, 0) != 0:
        raise _last_error()


def make_mount_writable(place: Path) -> None:
    """`mount -o remount,bind,rw`: this mount only, as this process sees it; not the filesystem behind it."""
    flags = os.statvfs(place).f_flag & _KEPT
    if _MOUNT(None, os.fsencode(place), None, ctypes.c_ulong(_MS_REMOUNT | _MS_BIND | flags), None) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
