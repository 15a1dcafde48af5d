"""The pages that lead through metal name files and functions that exist."""

from __future__ import annotations

import pytest

from tests.unit.walks import exists, hops, modules, named_modules

WALK = hops("docs/architecture.md", "A walk: Metal3Machine to Ready", "metal")
EXAMPLES = hops("docs/contribute.md", "Worked examples: metal")
MOST = 12  # files of metal that whoever follows the walk opens


@pytest.mark.parametrize(("file", "name"), sorted({*WALK, *EXAMPLES}))
def test_every_hop_exists(file: str, name: str) -> None:
    assert exists(file, name)


def test_a_name_that_is_not_there_is_found() -> None:
    assert not exists("metal/decide.py", "decide_machin")


def test_the_walk_opens_few_files_of_metal() -> None:
    assert len({file for file, _ in WALK if file.startswith("metal/")}) <= MOST


def test_the_readme_names_every_module() -> None:
    assert modules("metal") == named_modules("metal")
