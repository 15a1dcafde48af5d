"""`make contracts`: write the snapshot of the code as it is."""

from __future__ import annotations

from tests.contracts.snapshot import FOLDER, SOURCE, collect, read_kept, write_text
from tests.contracts.source import Source

FOLDER.mkdir(exist_ok=True)
made = {name: write_text(name, data) for name, data in collect(Source(SOURCE)).items()}
for path in FOLDER.glob("*.yaml"):
    if path.stem not in made:
        path.unlink()
for name, text in made.items():
    print(f"contracts: {name} {'as it was' if read_kept(name) == text else 'changed'}")
    (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")
