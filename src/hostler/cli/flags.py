"""Flags made from the table of settings, so that no setting is described twice."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from hostler.settings import foundation
from hostler.settings.model import AnySetting
from hostler.settings.resolve import resolve

R = TypeVar("R")
# What every command that talks to the cluster takes.
CLUSTER = (foundation.KUBECONFIG, foundation.CONTEXT, foundation.NAMESPACE)


def takes(*settings: AnySetting, read: Callable[..., Any] = resolve) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the flags of these settings; it gets what `read` makes of them as its first argument.

    Only these settings are read and checked: a mistake in another must not keep anybody from, say, `hostler pause`.
    """
    table = (*settings, *(() if foundation.CONFIG in settings else (foundation.CONFIG,)))

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_settings(**given: Any) -> R:
            flags = {one.key: _text(text) for one in table if (text := given.pop(one.key, None)) is not None}
            return command(read(flags, os.environ, table=table), **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        flags = [_flag(one) for one in table if one.has_flag]
        # typer reads a command's signature to know its options; this is where ours says them.
        with_settings.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
        return with_settings

    return decorate


def _flag(setting: AnySetting) -> inspect.Parameter:
    names = f"{setting.flag}/--no-{setting.flag[2:]}" if setting.reader.switch else setting.flag
    option = typer.Option(
        names,
        help=help_of(setting),
        metavar=None if setting.reader.switch else setting.reader.metavar,
        show_default=False,
        rich_help_panel=f"Settings: {setting.room}",
        autocompletion=_completing(setting.reader.words) if setting.reader.words else None,
    )
    kind: Any = bool | None if setting.reader.switch else str | None
    return inspect.Parameter(
        setting.key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def help_of(setting: AnySetting) -> str:
    """`What it is. (env NAME; default X)`"""
    default = setting.show(setting.default)
    return f"{setting.help} (env {setting.name}{f'; default {default}' if default else ''})"


def _text(given: str | bool) -> str:
    return ("true" if given else "false") if isinstance(given, bool) else given


def _completing(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Completes to the words that fit; in a comma-separated list, the last of them."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(last)]

    return complete
