"""The part of requirements.lock that Hostler needs at run time, hashes and all; the `Dockerfile` installs that.

    python -m hostler.ship.lock requirements.lock

pip takes hashes only for everything or for nothing: our own wheel has none, so it is installed after these, alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import Path

from hostler.ship.image import needed


def part(lock: str, names: Collection[str]) -> str:
    """The entries of these packages, as they stand there."""
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    named = {re.sub(r"[-_.]+", "-", entry.partition("==")[0]).lower(): entry for entry in entries if "==" in entry}
    return "".join(named[name] for name in sorted(names))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hostler.ship.lock REQUIREMENTS.LOCK")
    sys.stdout.write(part(Path(sys.argv[1]).read_text(encoding="utf-8"), needed("hostler")))


if __name__ == "__main__":
    main()
