"""Commands that were printed or documented for people, run as they stand, with the kubectl of a sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hostler.sandbox import Sandbox


def make_kubectl(program: str, folder: Path) -> None:
    """A `kubectl` in this folder; `program`: the sandbox's, which is several in one."""
    folder.mkdir(exist_ok=True)
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {program} kubectl "$@"\n')
    kubectl.chmod(0o700)


def run_shell(box: Sandbox, command: str, folder: Path) -> str:
    """What the command prints; it has to succeed."""
    make_kubectl(box.state.programs["controlplane"], folder / "bin")
    environment = {**box.kubectl_environment(), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
