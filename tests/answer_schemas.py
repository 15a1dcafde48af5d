"""Compares what a command printed with its schema in docs/schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def check_answer(command: str, printed: str) -> None:
    """The answer has every field that the schema asks for, and none that it does not know."""
    schema = json.loads((FOLDER / f"{command.replace(' ', '-')}.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(printed), closed(schema), jsonschema.Draft202012Validator)


def closed(schema: Any) -> Any:
    """The same, refusing what is not in it: a test wants to know what is not documented."""
    match schema:
        case dict():
            more = {"additionalProperties": False} if "properties" in schema else {}
            return {key: closed(value) for key, value in schema.items()} | more
        case list():
            return [closed(one) for one in schema]
        case _:
            return schema
