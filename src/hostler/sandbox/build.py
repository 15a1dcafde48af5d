"""Builds the sandbox's Go programs once, and finds them ever after without Go and without a network.

<cache>/controlplane-<key>            the program; the key is a hash of sources, flags, Go version and machine
<cache>/capi-<key>/                   a folder of programs, where one Go module has several
<cache>/controlplane-<sources>.json   which key was built last from these sources: what a machine without Go reads
<cache>/controlplane.log              what Go said
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from hostler.errors import Complaint
from hostler.sandbox.gotool import cache_dir, environment, find_go
from hostler.sandbox.mending import change_modules, edits_of
from hostler.sandbox.process import tail

PROGRAMS = ("controlplane", "vcenter", "ignition")
# Built only where they are asked for (`--with`): the programs of one Go module, by the name of their file.
EXTRAS: dict[str, dict[str, str]] = {
    "capi": {
        "core": "sigs.k8s.io/cluster-api/core",
        "bootstrap": "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
        "control-plane": "sigs.k8s.io/cluster-api/controlplane/kubeadm",
        "clusterctl": "sigs.k8s.io/cluster-api/cmd/clusterctl",
    },
}
# Without DWARF the compiler does a fifth less work; nobody debugs the control plane with a debugger here.
FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")


# Where a program keeps its version, by the module whose version that is.
VERSIONED = {
    "k8s.io/kubernetes": ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
    "sigs.k8s.io/cluster-api": ("sigs.k8s.io/cluster-api/version",),
}


class Progress(Protocol):
    """Whoever watches a build."""

    def say(self, sentence: str) -> None: ...
    def step(self, done: int, total: int) -> None: ...


class Record(msgspec.Struct, frozen=True):
    """What stands beside a built program."""

    key: str
    go: str
    seconds: float


def sources(program: str) -> Path:
    """The Go sources: in a checkout, or inside the installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[3] / "sandbox" / program, here.parent / "go" / program):
        if (folder / "go.mod").exists():
            return folder
    raise Complaint(
        f"The sources of the sandbox's {program} are not part of this installation.",
        hint="Install Hostler from its wheel or run it from a checkout.",
    )


def find(program: str) -> Path | None:
    """The built program for today's sources, or None. Asks nobody but the cache."""
    record = _record_path(program)
    try:
        known = msgspec.json.decode(record.read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    binary = cache_dir() / f"{program}-{known.key}"
    if not os.access(binary, os.X_OK):
        return None
    with suppress(OSError):  # a cache we may only read
        os.utime(binary)  # what is used is not forgotten for what another checkout builds
    return binary


def ensure(program: str, progress: Progress, *, force: bool = False) -> Path:
    """The built program, built now if it is not there."""
    if not force and (found := find(program)):
        return found
    with _lock(program, progress):
        # Whoever held the lock may have built it for us.
        if not force and (found := find(program)):
            return found
        return _build(program, progress)


def digest(program: str) -> str:
    """A hash of everything that goes into the program apart from Go itself."""
    folder = sources(program)
    edits = [repr(edit) for edit in edits_of(folder)]
    total = hashlib.sha256(" ".join((platform.machine(), *FLAGS, *_version_flags(folder), *edits)).encode())
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not name.endswith("_test.go") and (file.suffix == ".go" or name in {"go.mod", "go.sum"}):
            total.update(f"\0{name}\0".encode())
            total.update(file.read_bytes())
    return total.hexdigest()[:16]


def _build(program: str, progress: Progress) -> Path:
    folder, begin = sources(program), time.monotonic()
    go, version = find_go(progress.say)
    key = hashlib.sha256(f"{digest(program)} {version}".encode()).hexdigest()[:16]
    log = cache_dir() / f"{program}.log"
    progress.say(f"Building the sandbox's {program} from {folder} with {version}. This happens once.")
    with log.open("w") as written, tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as partial:
        packages = EXTRAS.get(program, {"": "."})
        total = _count_packages(go, folder, list(packages.values()), log, progress)
        made = Path(partial) / program
        flags = [*FLAGS, "-ldflags", " ".join(("-s", "-w", *_version_flags(folder)))]
        flags += change_modules(go, folder, Path(partial))
        done = 0
        for name, package in packages.items():
            with _go([go, "build", "-v", *flags, "-o", str(made / name), package], folder) as lines:
                for line in lines:
                    written.write(line)
                    done += 1
                    progress.step(min(done, total), total)
                    written.flush()
                code = lines.wait()
            if code != 0:
                raise _failure(program, log, f"`go build` ended with code {code}")
        final = cache_dir() / f"{program}-{key}"
        if final.is_dir():
            shutil.rmtree(final)  # built again by force; a folder is not replaced by another
        made.replace(final)
    seconds = round(time.monotonic() - begin, 1)
    _write_atomically(_record_path(program), msgspec.json.encode(Record(key=key, go=version, seconds=seconds)))
    _forget_older(program, final)
    progress.say(f"Built {final} ({_size(final) / 1e6:.0f} MB) in {seconds:.0f} s.")
    return final


def _size(built: Path) -> int:
    files = built.iterdir() if built.is_dir() else [built]
    return sum(file.stat().st_size for file in files)


class _Lines:
    """The lines a Go command writes, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __iter__(self) -> Iterator[str]:
        assert self._process.stdout is not None
        return iter(self._process.stdout)

    def wait(self) -> int:
        return self._process.wait()


@contextmanager
def _go(command: list[str], folder: Path) -> Iterator[_Lines]:
    """Run Go; an interrupted build takes its compilers with it."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        try:
            yield _Lines(process)
        except BaseException:
            process.terminate()
            raise


def _count_packages(go: str, folder: Path, wanted: list[str], log: Path, progress: Progress) -> int:
    """How many packages there are to build; downloads the modules on the way."""
    downloads = packages = 0
    begin = time.monotonic()
    with log.open("a") as written, _go([go, "list", "-deps", "-f", "{{.ImportPath}}", *wanted], folder) as lines:
        for line in lines:
            if line.startswith("go: downloading "):
                downloads += 1
                if downloads % 25 == 0:
                    progress.say(f"Downloaded {downloads} modules in {time.monotonic() - begin:.0f} s.")
            elif re.fullmatch(r"[\w./~+-]+", line.strip()):
                packages += 1
                continue
            written.write(line)
            written.flush()
        code = lines.wait()
    if code != 0:
        raise _failure(folder.name, log, "its modules could not be read or downloaded")
    return packages


def _failure(program: str, log: Path, what: str) -> Complaint:
    return Complaint(
        f"The sandbox's {program} could not be built: {what}. Go's last words were:\n{tail(log, 8)}",
        hint=f"\nThe whole log is {log}. Modules come from GOPROXY; `go env GOPROXY` shows which.",
    )


def _version_flags(folder: Path) -> list[str]:
    """What `kubectl version` and `clusterctl version` shall say. The commit is not known from a module, so it names
    the module instead."""
    table = (folder / "go.mod").read_text()
    flags = []
    for module, packages in VERSIONED.items():
        if match := re.search(rf"^\s*{re.escape(module)} (v(\d+)\.(\d+)\.\S+)", table, re.MULTILINE):
            values = {
                "gitVersion": match[1],
                "gitMajor": match[2],
                "gitMinor": match[3],
                "gitCommit": f"{module}@{match[1]}",
                "gitTreeState": "archive",
                "buildDate": "1970-01-01T00:00:00Z",  # the same sources give the same file
            }
            flags += [f"-X={package}.{name}={value}" for package in packages for name, value in values.items()]
    return flags


def _record_path(program: str) -> Path:
    return cache_dir() / f"{program}-{digest(program)}.json"


def _write_atomically(path: Path, data: bytes) -> None:
    partial = path.with_suffix(f".partial-{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def _forget_older(program: str, newest: Path) -> None:
    """Keep the five builds used last: each may be 150 MB, and another checkout may still want an older one."""
    built = [p for p in cache_dir().glob(f"{program}-*") if p.suffix == ""]
    for old in sorted(built, key=lambda p: p.stat().st_mtime, reverse=True)[5:]:
        if old == newest:
            continue
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)


@contextmanager
def _lock(program: str, progress: Progress) -> Iterator[None]:
    """One builder at a time; the lock goes with the process, so a killed one leaves none behind."""
    with (cache_dir() / f"{program}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"Another process is building the sandbox's {program}; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Lines:
    """Progress as plain lines, at most one every few seconds: for logs and pipes."""

    def __init__(self, write: Callable[[str], object], every: float = 15.0) -> None:
        self._write, self._every = write, every
        self._begin = self._last = time.monotonic()

    def say(self, sentence: str) -> None:
        self._write(sentence)

    def step(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._write(f"Built {done} of {total} packages in {now - self._begin:.0f} s.")


class Silent:
    """Progress nobody watches."""

    def say(self, sentence: str) -> None:
        """Nobody listens."""

    def step(self, done: int, total: int) -> None:
        """Nobody looks."""
