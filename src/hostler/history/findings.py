"""What `hostler doctor` says of the history."""

from __future__ import annotations

from collections.abc import Iterator

from hostler.explain.doctor import Finding, Level
from hostler.history.settings import HISTORY_URL
from hostler.history.stores import installation_of
from hostler.history.wire import HistoryAnswer
from hostler.host.facts import Fact, Unknown
from hostler.settings.model import Settings

WHAT = "history"
FIX = "Entries wait in the operator's memory and nothing else is held up: docs/history.md#when-it-is-not-written."


async def look_from_here(settings: Settings) -> str | None:
    """Why this machine cannot use the PostgreSQL that its own settings name; "" where it can, None without one."""
    if not settings[HISTORY_URL]:
        return None
    from hostler.history.postgres import PostgresHistory
    from hostler.history.recorder import StoreFailed

    store = PostgresHistory(settings[HISTORY_URL], installation_of(settings), 0.0, lambda: "This only looks.")
    try:
        await store.look()
    except StoreFailed as failed:
        return f"{str(failed).rstrip('.')}."
    finally:
        await store.close()
    return ""


def findings(asked: Fact[HistoryAnswer] | None, here: str | None) -> Iterator[Finding]:
    """`asked`: what the operator answered, None where there is none. `here`: see `look_from_here`."""
    match asked:
        case Unknown(why=why):
            yield Finding(Level.WARNING, WHAT, why, FIX)
        case None:
            pass
        case known if known.value.trouble:
            yield Finding(Level.PROBLEM, WHAT, known.value.trouble, FIX)
    if here:
        yield Finding(Level.PROBLEM, f"{WHAT} (from here)", here, "Check HOSTLER_HISTORY_URL: docs/history.md.")
    elif here is not None:
        yield Finding(Level.FINE, f"{WHAT} (from here)", "PostgreSQL answers, and its table can be read.")
