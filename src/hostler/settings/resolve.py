"""From flags, environment and file to settings. All that is wrong is said at once, before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from hostler.errors import Complaint, Exit
from hostler.settings import foundation
from hostler.settings.model import HIDDEN, PREFIX, AnySetting, Resolved, Rule, Settings
from hostler.settings.table import RULES, SETTINGS

# What Kubernetes puts into a pod's environment for Services named hostler or hostler-...: not settings.
_SERVICE_LINK = re.compile(
    r"HOSTLER_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
# Variables of Hostler that are not settings of the operator.
_OTHERS = re.compile(r"HOSTLER_(SANDBOX|TEST|BENCH|CACHE)(_[A-Z0-9_]*)?")


@dataclass(frozen=True, slots=True)
class Given:
    """The text somebody gave for a setting, and where."""

    text: str
    source: str


def resolve(
    flags: Mapping[str, str],
    env: Mapping[str, str],
    *,
    table: Collection[AnySetting] = SETTINGS,
    rules: Iterable[Rule] | None = None,
) -> Settings:
    """The settings of this run: flag before environment before file before default.

    `flags` maps a setting's key to the text after its flag. With a smaller `table` only those settings are read, and
    nothing is said about others: a mistake elsewhere must not keep anybody from the stop button.
    """
    whole = len(table) == len(SETTINGS)
    problems: list[str] = []
    path = flags.get(foundation.CONFIG.key) or env.get(foundation.CONFIG.name) or ""
    in_file, file_problems = read_file(path) if path else ({}, [])
    problems += file_problems
    if whole:
        problems += _unknown_variables(env)
    values: dict[str, Resolved] = {}
    for setting in table:
        given = _given(setting, flags, env, in_file)
        if given is None:
            values[setting.name] = Resolved(setting, setting.default, "default")
            continue
        try:
            values[setting.name] = Resolved(setting, setting.reader.read(given.text), given.source)
        except ValueError:
            problems.append(_wrong(setting, given))
            values[setting.name] = Resolved(setting, setting.default, given.source)
    settings = Settings(values)
    if not problems and (whole or rules is not None):
        problems += [sentence for rule in (RULES if rules is None else rules) if (sentence := rule(settings))]
    if problems:
        raise complaint(problems)
    return settings


def complaint(problems: list[str]) -> Complaint:
    """One sentence for one problem, a list for several."""
    hint = "Nothing was started. `hostler config` shows every setting and where its value comes from."
    if len(problems) == 1:
        return Complaint(problems[0], hint=hint, code=Exit.SETTING)
    lines = "\n".join(f"  - {problem}" for problem in problems)
    return Complaint(f"{len(problems)} settings are wrong:\n{lines}\n", hint=hint, code=Exit.SETTING)


def _given(
    setting: AnySetting, flags: Mapping[str, str], env: Mapping[str, str], in_file: Mapping[str, Given]
) -> Given | None:
    if setting.key in flags:
        return Given(flags[setting.key], f"flag {setting.flag}")
    # An empty variable counts as unset: that is how charts and shells spell "no value".
    if env.get(setting.name):
        return Given(env[setting.name], f"environment {setting.name}")
    return in_file.get(setting.key)


def _wrong(setting: AnySetting, given: Given) -> str:
    value = HIDDEN if setting.secret else f'"{given.text}"'
    return f"{setting.name} ({given.source}) is {value}, but must be {setting.reader.allowed}."


def _unknown_variables(env: Mapping[str, str]) -> list[str]:
    known = {setting.name for setting in SETTINGS}
    return [
        f"environment {name} is not a setting.{_nearest(name, known)}"
        for name in sorted(env)
        if name.startswith(PREFIX)
        and name not in known
        and not _SERVICE_LINK.fullmatch(name)
        and not _OTHERS.fullmatch(name)
    ]


def _nearest(word: str, known: Collection[str]) -> str:
    """` Did you mean X?`, or nothing where no name is near. `HOSTLER_DRY_RUN` is near to `DRY_RUN`."""
    bare = word.removeprefix(PREFIX)
    if bare in known:
        return f" Did you mean {bare}?"
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else ""


# -- the file


def read_file(path: str) -> tuple[dict[str, Given], list[str]]:
    """The settings in a YAML file by key, and every problem in it. A file that cannot be read at all is a Complaint."""
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
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise Complaint(
            f"The settings file {path} is not YAML: {_where(error)}.",
            hint="Write `key: value` lines.",
            code=Exit.SETTING,
        ) from error
    if root is None:
        return {}, []
    if not isinstance(root, yaml.MappingNode):
        raise Complaint(
            f"The settings file {path} does not hold settings.", hint="Write `key: value` lines.", code=Exit.SETTING
        )
    return _settings_of(root, path)


def _settings_of(root: yaml.MappingNode, path: str) -> tuple[dict[str, Given], list[str]]:
    by_key = {setting.key: setting for setting in SETTINGS if setting.in_file}
    found: dict[str, Given] = {}
    problems: list[str] = []
    for key_node, value_node in root.value:
        key, source = str(key_node.value), f"file {path} line {key_node.start_mark.line + 1}"
        text = _text_of(value_node)
        if key not in by_key:
            problems.append(f'"{key}" ({source}) is not a setting.{_nearest(key, by_key)}')
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


def _where(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem or 'wrong'} in line {error.problem_mark.line + 1}"
    return "it holds a character that YAML does not allow"
