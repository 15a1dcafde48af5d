"""Terminal pictures of the commands people use most, as tmux shows them, for whoever changes a table.

`python -m hostler.ship.screens OUT` runs each command in a terminal of 80, 120 and 200 columns against the cluster of
KUBECONFIG and the operator of HOSTLER_OPERATOR, and writes OUT/COMMAND-WIDTH.txt as it stood on the screen.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hostler.errors import Complaint

WIDTHS = (80, 120, 200)
HEIGHT = 120
SECONDS = 60.0
COMMANDS: dict[str, str] = {
    "hosts": "hosts",
    "host": "host gpu-1",
    "status": "status",
    "explain": "explain node/gpu-1",
    "plan": "plan node/gpu-1",
    "operations": "operations",
    "history": "history",
    "maintenance": "maintenance status",
    "metal-hosts": "metal hosts -A",
    "doctor": "doctor",
}


def take(command: str, width: int, environment: dict[str, str], *, colour: bool = False) -> str:
    """What stands on a terminal of this width once the command has ended."""
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-S", f"{folder}/tmux"]
        ended = Path(folder, "ended")
        line = f"{shlex.quote(sys.executable)} -m hostler {command}; touch {shlex.quote(str(ended))}; sleep {SECONDS}"
        start = [*tmux, "-f", os.devnull, "new-session", "-d", "-x", str(width), "-y", str(HEIGHT), line]
        subprocess.run(start, env=environment, check=True, capture_output=True, text=True)
        try:
            end = time.monotonic() + SECONDS
            while not ended.exists():
                if time.monotonic() > end:
                    raise Complaint(f"`hostler {command}` did not end within {SECONDS:.0f} s.")
                time.sleep(0.1)
            capture = [*tmux, "capture-pane", "-p", "-S", "-2000", *(["-e"] if colour else [])]
            shown = subprocess.run(capture, env=environment, check=True, capture_output=True, text=True).stdout
        finally:
            subprocess.run([*tmux, "kill-server"], env=environment, check=False, capture_output=True)
    return shown.rstrip() + "\n"


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, command in COMMANDS.items():
        for width in WIDTHS:
            environment = {**os.environ, "TERM": "screen-256color"}
            (out / f"{name}-{width}.txt").write_text(take(command, width, environment), encoding="utf-8")


if __name__ == "__main__":
    main()
