"""An image without a container runtime: an OCI layout of the interpreter, its libraries and the locked packages.

    python -m hostler.ship.image dist/image

Everything comes from the environment it is built in (`make env`, every package checked by hash), so it needs no
network and no registry. The same environment gives the same bytes: sorted names, one date, no owner, and byte code
that does not depend on dates.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

from hostler import __version__
from hostler.errors import Complaint
from hostler.ship.oci import write_layout
from hostler.ship.sbom import Part, document

USER = 65532
HOME = "opt/hostler"  # the interpreter; `HOME/site`: our packages
# Of the standard library: what a server never imports. Of our own: what only a checkout has a use for.
UNUSED = ("test", "idlelib", "tkinter", "_tkinter*", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "config-*",
          "site-packages", "dist-packages", "__pycache__")  # fmt: skip
OURS_UNUSED = ("sandbox", "ship", "sandbox.py", "demo.py", "__pycache__")
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nhostler:x:{USER}:{USER}:hostler:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nhostler:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
ENVIRONMENT = {
    "PATH": f"/{HOME}/bin",
    "PYTHONPATH": f"/{HOME}/site",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}


@dataclass(frozen=True, slots=True)
class Built:
    """Where the layout is, and the digest of the image in it."""

    layout: Path
    digest: str


def build(target: Path) -> Built:
    """Write the layout to `target`, which must not exist; beside it lies `sbom.spdx.json`."""
    if target.exists():
        raise Complaint(f"{target} exists already.", hint="Remove it, or name another directory.")
    work = target.with_name(f"{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    runtime, app = work / "runtime", work / "app"
    parts = list(_packages(app))
    _interpreter(runtime)
    _compile(runtime, app)
    libraries = _libraries((runtime, app))
    for path in libraries:
        _put(runtime, path)
    _furniture(runtime)
    python = sys.version.split()[0]
    layout = work / "layout"
    digest = write_layout(
        layout,
        [runtime, app],
        entrypoint=[f"/{HOME}/bin/python3", "-m", "hostler"],
        environment=ENVIRONMENT,
        user=f"{USER}:{USER}",
        labels={
            "org.opencontainers.image.title": "hostler",
            "org.opencontainers.image.version": __version__,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )
    (layout / "sbom.spdx.json").write_bytes(document([Part("python", python), *parts, *_owners(libraries)], digest))
    layout.replace(target)
    shutil.rmtree(work)
    return Built(target, digest)


# -- what goes in


def _interpreter(root: Path) -> None:
    """The interpreter and its library, found by it as `bin/../lib/pythonX.Y`."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    binary = root / HOME / "bin" / "python3"
    binary.parent.mkdir(parents=True)
    shutil.copyfile(Path(sys.executable).resolve(), binary)
    binary.chmod(0o755)
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        stdlib, root / HOME / "lib" / name, ignore=shutil.ignore_patterns(*UNUSED), ignore_dangling_symlinks=True
    )


def _packages(root: Path) -> Iterator[Part]:
    """Every package Hostler needs at run time, as it was installed, and Hostler itself."""
    site = root / HOME / "site"
    shutil.copytree(Path(__file__).parents[1], site / "hostler", ignore=shutil.ignore_patterns(*OURS_UNUSED))
    yield Part("hostler", __version__, "Apache-2.0")
    for name in sorted(needed("hostler")):
        found = metadata.distribution(name)
        for file in found.files or ():
            where = Path(str(found.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts or file.name in ("INSTALLER", "REQUESTED", "RECORD"):
                continue
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(where, site / file)
        licence = str(found.metadata.json.get("license_expression") or "NOASSERTION")
        yield Part(found.metadata["Name"], found.version, licence, f"pkg:pypi/{name}@{found.version}")


def needed(name: str, seen: set[str] | None = None) -> set[str]:
    """The names of all packages that `name` requires here, of any depth; extras and other platforms left out."""
    found: set[str] = set() if seen is None else seen
    for line in metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        match = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
        if match is None or "extra ==" in marker:
            continue
        wanted = re.sub(r"[-_.]+", "-", match[0]).lower()
        if wanted in found:
            continue
        try:
            metadata.distribution(wanted)
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        found.add(wanted)
        needed(wanted, found)
    return found


def _compile(*roots: Path) -> None:
    """Byte code that is valid whatever the date of its source: the root file system is read-only when it runs."""
    for root in roots:
        # In a process of its own that has loaded nothing else: what is interned there shows in the byte code.
        done = subprocess.run(
            [sys.executable, "-S", "-s", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash",
             "-s", str(root), "-p", "/", str(root)],
            env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = done.stdout.strip().splitlines()[-1:]
            raise Complaint(f"Some Python files of the image do not compile: {''.join(last)}.")


def _furniture(root: Path) -> None:
    """Accounts, how names are resolved, the CAs of the public, and a place for short-lived files."""
    for name, text in ACCOUNTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    known = (
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        ssl.get_default_verify_paths().cafile,
    )
    bundle = next((path for path in known if path and Path(path).is_file()), None)
    if bundle is None:
        raise Complaint("This machine has no CA certificates.", hint="Debian: apt-get install ca-certificates.")
    target = root / ENVIRONMENT["SSL_CERT_FILE"].lstrip("/")
    target.parent.mkdir(parents=True)
    shutil.copyfile(bundle, target)


# -- shared libraries


def _libraries(roots: Iterable[Path]) -> list[Path]:
    """Every shared library that a program or module of the image loads from the machine, with the loader."""
    objects = [path for root in roots for path in root.rglob("*") if path.is_file() and _is_elf(path)]
    env = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    done = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, check=False, env=env)  # nosec B607 # PATH of who builds
    lost = sorted(set(re.findall(r"(\S+) => not found", done.stdout)))
    if lost:
        raise Complaint(f"Libraries of the image are not on this machine: {', '.join(lost)}.")
    inside = tuple(str(root) for root in roots)
    named = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE))
    return sorted(Path(library) for library in named if not library.startswith(inside))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _put(root: Path, path: Path) -> None:
    """A library where the loader looks for it. No symlinked directories: `/lib64` is made, not linked."""
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    target.chmod(0o755)


def _owners(libraries: Iterable[Path]) -> Iterator[Part]:
    """The Debian packages the libraries came from; on another system the libraries themselves."""
    if shutil.which("dpkg-query") is None:
        yield from (Part(path.name, "NOASSERTION") for path in libraries)
        return
    # A file may be known by the path it was unpacked to, before /lib became a link to /usr/lib.
    places = {place for path in libraries for real in (str(path), str(path.resolve()))
              for place in (real, real.removeprefix("/usr"))}  # fmt: skip
    found = subprocess.run(["dpkg-query", "-S", *sorted(places)], capture_output=True, text=True, check=False)  # nosec B607 # PATH of who builds
    names = sorted({line.partition(": ")[0].partition(",")[0] for line in found.stdout.splitlines()})
    system = platform.freedesktop_os_release()["ID"]  # debian, ubuntu: each patches its own
    listing = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names]
    for line in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines():
        package, version = line.split()
        yield Part(package, version, "NOASSERTION", f"pkg:deb/{system}/{quote(package)}@{quote(version, safe=':')}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hostler.ship.image DIRECTORY")
    try:
        built = build(Path(sys.argv[1]).absolute())
    except Complaint as complaint:
        sys.exit(f"image: {complaint.sentence} {complaint.hint}")
    print(f"{built.layout} {built.digest}")


if __name__ == "__main__":
    main()
