"""Flags made from the table of settings, so that no setting is described twice."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from hostler.durations import seconds_of, short
from hostler.errors import Complaint, Exit
from hostler.settings import foundation
from hostler.settings.model import AnySetting
from hostler.settings.resolve import resolve

R = TypeVar("R")
# What every command that talks to the cluster takes.
CLUSTER = (foundation.KUBECONFIG, foundation.CONTEXT, foundation.NAMESPACE)
# Few people ever set these for a command: the help pages leave them out.
RARE = (foundation.CONFIG, foundation.LEASE_NAME, foundation.SERVICE)
MORE = "Flags of settings that are not listed here: `hostler config --help`."


def takes(
    *settings: AnySetting, quiet: Sequence[AnySetting] = RARE, also: Sequence[AnySetting] = (),
    read: Callable[..., Any] = resolve,
) -> Callable[[Callable[..., R]], Callable[..., R]]:  # fmt: skip
    """Give a command the flags of these settings; it gets what `read` makes of them as its first argument.

    Only these settings are read and checked: a mistake in another must not keep anybody from, say, `hostler pause`.
    The flags of `quiet` and `also` are there, and the help page leaves them out: it names `hostler config` instead.
    """
    table = tuple(dict.fromkeys((*settings, *also, foundation.CONFIG)))
    hidden = {*quiet, *also} & set(table)

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_settings(**given: Any) -> R:
            flags = {one.key: text for one in table if (text := _text(one, given)) is not None}
            return command(read(flags, os.environ, table=table), **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        flags = [flag for one in table if one.has_flag for flag in _flags(one, hidden=one in hidden)]
        # typer reads a command's signature to know its options; this is where ours says them.
        with_settings.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
        if hidden:
            with_settings.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{MORE}"
        return with_settings

    return decorate


def _flags(setting: AnySetting, *, hidden: bool) -> list[inspect.Parameter]:
    """A setting's flag; of a switch also `--no-x`, which is left out of the help to keep that readable."""
    panel = f"Settings: {setting.section}"
    if not setting.reader.switch:
        words = setting.reader.words
        option = typer.Option(
            setting.flag,
            help=help_of(setting),
            metavar=setting.reader.metavar,
            show_default=False,
            rich_help_panel=panel,
            autocompletion=_completing(words) if words else None,
            hidden=hidden,
        )
        return [_parameter(setting.key, str | None, option)]
    on = typer.Option(setting.flag, help=help_of(setting), show_default=False, rich_help_panel=panel, hidden=hidden)
    off = typer.Option(f"--no-{setting.flag[2:]}", hidden=True)
    return [_parameter(setting.key, bool | None, on), _parameter(f"no_{setting.key}", bool | None, off)]


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _text(setting: AnySetting, given: dict[str, Any]) -> str | None:
    """What was given after the setting's flag, taken out of `given`; None: nothing."""
    text: Any = given.pop(setting.key, None)
    if not setting.reader.switch:
        return None if text is None else str(text)
    off = given.pop(f"no_{setting.key}", None)
    if text and off:
        raise Complaint(f"{setting.flag} and --no-{setting.flag[2:]} exclude each other.", code=Exit.USAGE)
    return "true" if text else "false" if off else None


def duration(least: float, most: float | None = None) -> Callable[[str | float], float]:
    """Reads an option that takes a duration; for `typer.Option(parser=...)`."""

    def read(text: str | float) -> float:
        try:
            found = seconds_of(str(text))
        except ValueError as error:
            raise typer.BadParameter(f"{error}") from None
        if found < least or (most is not None and found > most):
            bounds = f"at least {short(least)}" if most is None else f"from {short(least)} to {short(most)}"
            raise typer.BadParameter(f"{text} is not {bounds}")
        return found

    return read


def help_of(setting: AnySetting) -> str:
    """`What it is. (env NAME; default X)`"""
    default = setting.show(setting.default)
    return f"{setting.help} (env {setting.name}{f'; default {default}' if default else ''})"


def _completing(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Completes to the words that fit; in a comma-separated list, the last of them."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(last)]

    return complete
