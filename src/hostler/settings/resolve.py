"""From flags, environment and file to settings. All that is wrong is said at once, before anything starts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from hostler.errors import Complaint, Exit
from hostler.settings.foundation import CONFIG
from hostler.settings.model import HIDDEN, PREFIX, AnySetting, Given, Resolved, Rule, Settings, nearest

# What Kubernetes puts into a pod's environment for Services named hostler or hostler-...: not settings.
_SERVICE_LINK = re.compile(
    r"HOSTLER_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
# Variables of Hostler that are not settings of the operator.
_OTHERS = re.compile(r"HOSTLER_(SANDBOX|TEST|BENCH|CACHE)(_[A-Z0-9_]*)?")


def resolve(
    flags: Mapping[str, str],
    env: Mapping[str, str],
    *,
    table: Collection[AnySetting],
    rules: Collection[Rule] | None = None,
) -> Settings:
    """The settings of this run: flag before environment before file before default. A Complaint lists every mistake.

    `flags` maps a setting's key to the text after its flag. With `rules`, `table` is the whole table. Without, only
    these settings are read, and nothing is said about others: a mistake elsewhere must not keep anybody from the stop
    button.
    """
    settings, problems = survey(flags, env, table=table, rules=rules)
    if problems:
        raise complaint(problems)
    return settings


def survey(
    flags: Mapping[str, str],
    env: Mapping[str, str],
    *,
    table: Collection[AnySetting],
    rules: Collection[Rule] | None = None,
) -> tuple[Settings, list[str]]:
    """As `resolve`, but with the problems as a list; a wrong value is kept as its text, so that it can be shown."""
    whole = rules is not None
    problems: list[str] = []
    path = flags.get(CONFIG.key) or env.get(CONFIG.name) or ""
    in_file: Mapping[str, Given] = {}
    if path:
        from hostler.settings.file import read_file  # YAML is slow to import, and most commands need none

        in_file, in_file_problems = read_file(path, table)
        problems += in_file_problems if whole else []
    if whole:
        problems += _unknown_variables(env, table)
    values: dict[str, Resolved] = {}
    for setting in table:
        given = _given(setting, flags, env, in_file)
        values[setting.name], wrong = _read(setting, given)
        problems += wrong
    settings = Settings(values)
    if not problems:
        problems += [sentence for rule in rules or () if (sentence := rule(settings))]
    return settings, problems


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


def _read(setting: AnySetting, given: Given | None) -> tuple[Resolved, list[str]]:
    if given is None:
        return Resolved(setting, setting.default, "default"), []
    try:
        return Resolved(setting, setting.reader.read(given.text), given.source), []
    except ValueError:
        value = HIDDEN if setting.secret else f'"{given.text}"'
        sentence = f"{setting.name} ({given.source}) is {value}, but must be {setting.reader.allowed}."
        return Resolved(setting, given.text, given.source, wrong=True), [sentence]


def _unknown_variables(env: Mapping[str, str], table: Collection[AnySetting]) -> list[str]:
    known = {setting.name for setting in table}
    return [
        f"environment {name} is not a setting.{nearest(name, known)}"
        for name in sorted(env)
        if name.startswith(PREFIX)
        and name not in known
        and not _SERVICE_LINK.fullmatch(name)
        and not _OTHERS.fullmatch(name)
    ]
