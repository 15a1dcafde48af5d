"""Runs the host's own commands, on the host. Nothing else in the agent starts a process.

The agent's image has no program but Python, and the host's programs need the host's libraries and files: a forked child
enters the host's namespaces by system calls and becomes the command there. It is single-threaded, as a fork is, and
loads nothing after it has left the image.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from hostler.agent.refusal import Reason, Refusal

# The pod sees the host's processes (hostPID), so the first of them is the host's init.
NAMESPACES = tuple(f"/proc/1/ns/{name}" for name in ("ipc", "uts", "net", "mnt"))
# The pod's own variables are of its image: its PATH leads nowhere on the host.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C"}
PATIENCE = 120.0
NOT_ENTERED = 126


class Executor:
    """Runs a command in the host's own namespaces: what it sees is the host, not the pod."""

    def __init__(self, enter: Sequence[str] = ()) -> None:
        """`enter`: words before each command, instead of entering the namespaces."""
        self.enter = tuple(enter)

    def run(self, *command: str, reason: Reason = Reason.COMMAND_FAILED, patience: float = PATIENCE) -> str:
        """The command's output; a Refusal with its last line where it fails, is missing, or does not end."""
        spelled = " ".join(command)
        try:
            done = self._run(command, patience)
        except subprocess.TimeoutExpired:
            raise Refusal(reason, f"`{spelled}` did not end within {patience:g} s on the host.") from None
        except (OSError, subprocess.SubprocessError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise Refusal(reason, f"`{spelled}` could not be started on the host: {why}.") from error
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Refusal(reason, f"`{spelled}` ended with {done.returncode} on the host: {said}")
        return done.stdout

    def _run(self, command: Sequence[str], patience: float) -> subprocess.CompletedProcess[str]:
        with ExitStack() as open_files:
            entering: Callable[[], None] | None = None
            if not self.enter:
                handles = [_open_namespace(path, open_files) for path in NAMESPACES]
                entering = lambda: _enter(handles)  # noqa: E731
            return subprocess.run(
                [*self.enter, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=patience,
                check=False,
                env=dict(os.environ) if self.enter else ENVIRONMENT,
                preexec_fn=entering,
            )


def _open_namespace(path: str, open_files: ExitStack) -> int:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Refusal(
            Reason.COMMAND_FAILED,
            f"The host's namespace {path} cannot be opened: {error.strerror}. The agent's pod must be privileged and "
            "share the host's processes (hostPID).",
        ) from error
    open_files.callback(os.close, handle)
    return handle


def _enter(handles: Sequence[int]) -> None:
    """In the forked child, right before it becomes the command. Whatever fails ends it: it is a copy of the agent."""
    try:
        for handle in handles:
            enter_namespace(handle)
    except BaseException as error:  # noqa: BLE001
        why = error.strerror if isinstance(error, OSError) else repr(error)
        said = f"the host's namespaces cannot be entered: {why}; the agent's pod must be privileged\n"
        os.write(2, said.encode())
        os._exit(NOT_ENTERED)


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
