"""The entry point. `hostler run` and `hostler provider` with plain flags are read here: an operator would carry the
libraries of the command line, a fifth of its memory, for as long as it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from hostler import lean_imports
from hostler.capabilities import ONLY, SETTINGS, read_settings
from hostler.cli.failures import run_guarded
from hostler.errors import Exit
from hostler.metal.settings import PROVIDER_FLAGS
from hostler.settings.foundation import LOG_FORMAT, LOG_LEVEL
from hostler.settings.model import Settings


def main() -> None:
    """The entry point of the `hostler` program."""
    arguments = sys.argv[1:]
    flags = plain_flags(arguments)
    if flags is not None:
        sys.exit(run_guarded(lambda: operate(read_settings(flags, os.environ)), arguments))
    from hostler.cli.main import execute

    sys.exit(execute(arguments))


def plain_flags(words: Sequence[str]) -> dict[str, str] | None:
    """What is given after each flag of `hostler run`, by the setting's key. None: not plainly so, or another command.

    Whoever asks for help or makes a mistake gets the words of the command line's library.
    """
    if words[:1] == ["provider"]:
        return _plain_provider_flags(words[1:])
    if words[:1] != ["run"]:
        return None
    known = {one.flag: one for one in SETTINGS if one.has_flag}
    off = {f"--no-{flag[2:]}": one for flag, one in known.items() if one.reader.switch}
    found: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        flag, given, text = word.partition("=")
        setting = known.get(flag) or off.get(flag)
        if setting is None or setting.key in found or (given and setting.reader.switch):
            return None
        if setting.reader.switch:
            text = "false" if flag in off else "true"
        elif not given:
            text = next(rest, "-")
            if text.startswith("-"):  # the next flag perhaps: this one lacks its value
                return None
        found[setting.key] = text
    return found


def _plain_provider_flags(words: Sequence[str]) -> dict[str, str] | None:
    """The same of `hostler provider`, whose flags are written `--flag=value`, as clusterctl writes them."""
    given = {flag: text for flag, equals, text in (word.partition("=") for word in words) if equals}
    return provider_settings(given) if len(given) == len(words) and given.keys() <= PROVIDER_FLAGS.keys() else None


def provider_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What the flags of a provider set, by the setting's key. An empty one counts as not given."""
    named = {PROVIDER_FLAGS[flag].key: text for flag, text in given.items() if text.strip()}
    return {ONLY.key: "metal", **named}


def operate(settings: Settings) -> int:
    lean_imports.import_lean()
    from hostler import log
    from hostler.operator import run

    log.set_up(settings[LOG_FORMAT], settings[LOG_LEVEL])
    run(settings)
    return Exit.OK
