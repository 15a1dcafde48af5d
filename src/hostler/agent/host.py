"""The host's files, seen through the mount of its root in the pod. Every path here is a path on the host.

Links are followed as the host would follow them: an absolute link stays inside the mount. Writes are whole or not
there at all: a temporary name, fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hostler.agent.refusal import Reason, Refusal, disk_refusal

LOCK = "/run/hostler-agent.lock"  # gone with the next boot
_LINKS_FOLLOWED = 40


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: where, which directory of the filesystem, of what type, from which device."""

    point: str
    root: str
    kind: str
    source: str
    read_only: bool


class Host:
    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def at(self, path: str) -> Path:
        """Where this path of the host is for us; links are followed inside the host's root."""
        todo = [part for part in path.split("/") if part]
        here: list[str] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part == ".":
                continue
            if part == "..":
                here = here[:-1]
                continue
            place = self.root.joinpath(*here, part)
            if place.is_symlink():
                links += 1
                if links > _LINKS_FOLLOWED:
                    raise Refusal(Reason.DISK_FAILED, f"{path} on the host is a loop of links.")
                target = os.readlink(place)
                if target.startswith("/"):
                    here = []
                todo = [part for part in target.split("/") if part] + todo
                continue
            here.append(part)
        return self.root.joinpath(*here)

    def is_file(self, path: str) -> bool:
        return self.at(path).is_file()

    def is_dir(self, path: str) -> bool:
        return self.at(path).is_dir()

    def is_link_to_itself(self, path: str) -> bool:
        """Whether this is a link to the directory it is in, such as RHCOS's /boot/boot."""
        place = self.at(path.rpartition("/")[0]) / path.rpartition("/")[2]
        return place.is_symlink() and os.readlink(place) in (".", "./")

    def names(self, path: str) -> list[str]:
        """What a directory holds, sorted; nothing where there is no such directory."""
        try:
            return sorted(os.listdir(self.at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> bytes | None:
        """The file's bytes, or None where there is none."""
        try:
            return self.at(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def text(self, path: str) -> str | None:
        found = self.read(path)
        return None if found is None else found.decode("utf-8", "replace")

    def write(self, path: str, data: bytes) -> None:
        """The file holds these bytes after this, even after a power cut; or it is as it was. Mode and owner stay."""
        place = self.at(path)
        temporary = place.with_name(f".{place.name}.new")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                _take_access(file.fileno(), place)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, place)
            sync_directory(place.parent)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise disk_refusal(error, f"{path} could not be written on the host") from error

    def remove(self, path: str) -> None:
        """The file is not there after this. A directory goes if it is empty."""
        place = self.at(path)
        try:
            if place.is_dir():
                place.rmdir()
            else:
                place.unlink(missing_ok=True)
            if place.parent.is_dir():
                sync_directory(place.parent)
        except OSError as error:
            raise disk_refusal(error, f"{path} could not be removed on the host") from error

    def free(self, path: str) -> int:
        """Bytes that can still be written where this path is, or will be."""
        place = self.at(path)
        while not place.exists() and place != self.root:
            place = place.parent
        found = os.statvfs(place)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def alone(self, wait: Callable[[], bool]) -> Iterator[bool]:
        """For one process on this host at a time, until it has ended, however; False where `wait` said to end first.

        A pod may be started while the one before it is still at work: two would write into the same files.
        """
        try:
            place = self.at(LOCK)
            place.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        except (Refusal, OSError):
            yield True  # a host on which nothing can be written is refused by the step, which says so
            return
        try:
            mine = _locked(handle)
            while not mine and not wait():
                mine = _locked(handle)
            yield mine
        finally:
            os.close(handle)

    def mounts(self) -> list[Mount]:
        """The host's mounts, by its init; an unreadable line is left out."""
        text = self.text("/proc/1/mountinfo") or ""
        return [mount for mount in map(_mount, text.splitlines()) if mount is not None]

    def mount_of(self, path: str) -> Mount:
        """The mount this path is on; the root filesystem where mountinfo says nothing."""
        found = Mount("/", "/", "", "", False)
        for mount in self.mounts():  # a later mount on the same point hides the earlier one
            inside = mount.point == "/" or path == mount.point or path.startswith(mount.point + "/")
            if inside and len(mount.point) >= len(found.point):
                found = mount
        return found

    def boot_id(self) -> str:
        """Names this boot of the host; another after every restart."""
        found = (self.text("/proc/sys/kernel/random/boot_id") or "").strip()
        if not found:
            raise Refusal(Reason.DISK_FAILED, "The host's boot id cannot be read; is its root mounted in the pod?")
        return found

    def command_line(self) -> list[str]:
        """The words of the running kernel's command line."""
        return (self.text("/proc/cmdline") or "").split()


def _take_access(handle: int, place: Path) -> None:
    """Give an open file the owner and the mode of the one it replaces, before anything is in it."""
    try:
        old = place.stat()
    except FileNotFoundError:
        return
    new = os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(handle, old.st_uid, old.st_gid)
    if stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
        os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this filesystem knows no locks
    return True


def sync_directory(place: Path) -> None:
    """Make a rename in this directory last."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mount(line: str) -> Mount | None:
    before, dash, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if not dash or len(left) < 6 or len(right) < 2:
        return None
    return Mount(_plain(left[4]), _plain(left[3]), right[0], _plain(right[1]), "ro" in left[5].split(","))


def _plain(text: str) -> str:
    """mountinfo spells blanks as octal escapes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text
