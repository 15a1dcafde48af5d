"""The pages that lead through maintenance name files and functions that exist."""

from __future__ import annotations

import pytest

from tests.unit.walks import exists, hops, modules, named_modules

WALK = hops("docs/architecture.md", "A walk: Enter Maintenance to uncordon", "maintenance")
EXAMPLES = hops("docs/contribute.md", "Worked examples: drain and maintenance")
MOST = 14  # files of maintenance that whoever follows the walk opens


@pytest.mark.parametrize(("file", "name"), sorted({*WALK, *EXAMPLES}))
def test_every_hop_exists(file: str, name: str) -> None:
    assert exists(file, name)


def test_the_walk_opens_few_files_of_maintenance() -> None:
    assert len({file for file, _ in WALK if file.startswith("maintenance/")}) <= MOST


def test_the_readme_names_every_module() -> None:
    assert modules("maintenance") == named_modules("maintenance")
