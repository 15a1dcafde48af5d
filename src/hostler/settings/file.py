"""The settings file: YAML, one `key: value` per line, each with the line it stands in."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import yaml

from hostler.documents import NotReadable, compose_yaml
from hostler.errors import Complaint, Exit
from hostler.settings.model import PREFIX, AnySetting, Given, nearest


def read_file(path: str, table: Collection[AnySetting]) -> tuple[dict[str, Given], list[str]]:
    """The settings of `table` in a YAML file by key, and every problem in it. An unreadable file is a Complaint."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise Complaint(
            f"The settings file {path} cannot be read: {why}.",
            hint="Name another with --config or HOSTLER_CONFIG, or mend it.",
            code=Exit.SETTING,
        ) from error
    try:
        root = compose_yaml(text)
    except NotReadable as error:
        raise Complaint(
            f"The settings file {path} {error}.",
            hint="Write `key: value` lines.",
            code=Exit.SETTING,
        ) from error
    if root is None:
        return {}, []
    if not isinstance(root, yaml.MappingNode):
        raise Complaint(
            f"The settings file {path} does not hold settings.", hint="Write `key: value` lines.", code=Exit.SETTING
        )
    return _settings_of(root, path, table)


def _settings_of(
    root: yaml.MappingNode, path: str, table: Collection[AnySetting]
) -> tuple[dict[str, Given], list[str]]:
    by_key = {setting.key: setting for setting in table if setting.in_file}
    found: dict[str, Given] = {}
    problems: list[str] = []
    for key_node, value_node in root.value:
        key, source = _text_of(key_node) or "?", f"file {path} line {key_node.start_mark.line + 1}"
        text = _text_of(value_node)
        if key not in by_key:
            near = nearest(key.removeprefix(PREFIX).lower(), by_key)  # also for who wrote the variable's name
            problems.append(f'"{key}" ({source}) is not a setting.{near}')
        elif key in found:
            problems.append(f'"{key}" ({source}) is there twice; first: {found[key].source}.')
        elif text is None:
            problems.append(f'"{key}" ({source}) has no single value; it must be {by_key[key].reader.allowed}.')
        else:
            found[key] = Given(text, source)
    return found, problems


def _text_of(node: yaml.Node) -> str | None:
    """The value as it is written (`50%`, `true`, `[a, b]`): our readers decide what it means, not YAML."""
    if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:null":
        return str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return ",".join(str(item.value) for item in node.value)
    return None
