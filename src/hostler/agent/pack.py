"""`python -m hostler.agent.pack FILE`: the agent as one file that any Python 3.11 starts."""

from __future__ import annotations

import sys
import tempfile
import zipapp
from pathlib import Path
from shutil import copyfile


def pack(target: Path) -> None:
    """Only this package and the name it lives under; nothing else of hostler."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory) / "hostler" / "agent"
        package.mkdir(parents=True)
        for source in sorted(here.rglob("*.py")):
            if source.name != "pack.py":
                place = package / source.relative_to(here)
                place.parent.mkdir(exist_ok=True)
                copyfile(source, place)
        (package.parent / "__init__.py").write_text("")
        target.parent.mkdir(parents=True, exist_ok=True)
        (Path(directory) / "__main__.py").write_text(
            "import sys\nfrom hostler.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
        )
        zipapp.create_archive(directory, target, interpreter="/usr/bin/env python3", compressed=True)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
