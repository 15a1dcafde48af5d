"""Logs as data: JSON for machines, a console for people. Always on stderr; stdout carries only what was asked for."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(log_format: str = "auto", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Set the process's logging up, once, before anything logs. `auto` is console on a terminal, else JSON."""
    out = stream or sys.stderr
    if log_format == "auto":
        log_format = "console" if out.isatty() else "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[structlog.typing.Processor]
    if log_format == "json":
        ending = [structlog.processors.format_exc_info, _in_order, structlog.processors.JSONRenderer(sort_keys=False)]
    else:
        colors = out.isatty() and not os.environ.get("NO_COLOR")
        ending = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_Named(out),
        cache_logger_on_first_use=False,
    )
    # What libraries log (aiohttp's access log is off; asyncio's slow callbacks, warnings) goes the same way.
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        )
    )
    logging.basicConfig(level=max(_LEVELS[level], logging.INFO), handlers=[handler], force=True)


def _in_order(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """When, how bad and what first: people read JSON logs too."""
    first = {key: line.pop(key) for key in ("timestamp", "level", "event", "logger") if key in line}
    return {**first, **line}


class _Logger(structlog.PrintLogger):
    """A logger that knows its name, for `add_logger_name`."""

    def __init__(self, out: TextIO, name: str) -> None:
        super().__init__(out)
        self.name = name


class _Named:
    """Makes the loggers for `structlog.get_logger("hostler.x")`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, *names: object) -> _Logger:
        return _Logger(self._out, str(names[0]) if names else "hostler")
