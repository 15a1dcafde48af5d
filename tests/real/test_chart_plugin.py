"""The wheel in an empty environment, as the krew plugin makes it: `kubectl hostler` and `hostler` answer.

Installs every library from PyPI; `make wheels-check` runs it before a release.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from hostler import __version__
from hostler.ship import krew, release

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_the_plugin_runs_the_wheel_in_an_environment_of_its_own(tmp_path: Path) -> None:
    wheel = release.build_wheel(tmp_path)
    krew.write_plugin(tmp_path, ROOT, wheel, "https://github.com/OWNER/REPOSITORY")
    store = tmp_path / "store"
    with tarfile.open(tmp_path / krew.ARCHIVE) as archive:
        archive.extractall(store, filter="data")
    on_path = tmp_path / "bin"
    on_path.mkdir()
    (on_path / "kubectl-hostler").symlink_to(store / "kubectl-hostler")  # as krew does
    env = {**os.environ, "PATH": f"{on_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("PYTHONPATH", None)

    def answer(*command: str | Path) -> str:
        done = subprocess.run(
            list(map(str, command)), env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert answer("kubectl-hostler", "--version").strip() == f"hostler {__version__}"
    made = tmp_path / f"cache/kubectl-hostler/{__version__}/bin"
    # The commands that `uv tool install` and pipx put on the PATH.
    for name in ("hostler", "kubectl-hostler"):
        assert answer(made / name, "--version").strip() == f"hostler {__version__}"
    assert str(made.parent) in answer(made / "python", "-c", "import hostler; print(hostler.__file__)"), (
        "not this checkout"
    )
