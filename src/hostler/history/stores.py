"""Which store keeps the history, by the settings."""

from __future__ import annotations

from hostler.history.configmaps import ConfigMapHistory
from hostler.history.model import Limits
from hostler.history.recorder import Store
from hostler.history.settings import HISTORY_DAYS, HISTORY_URL
from hostler.kube.client import Client, Gate
from hostler.kube.writer import Writer
from hostler.settings.foundation import CLUSTER_NAME, NAMESPACE
from hostler.settings.model import Settings


def make_store(settings: Settings, client: Client, writer: Writer, gate: Gate) -> Store:
    days = float(settings[HISTORY_DAYS])
    if not settings[HISTORY_URL]:
        limits = Limits(days=min(days, Limits().days))
        return ConfigMapHistory(client, writer, settings[NAMESPACE], limits)
    # Imported only here: who keeps the history in ConfigMaps does not carry a client of PostgreSQL.
    from hostler.history.postgres import PostgresHistory

    return PostgresHistory(settings[HISTORY_URL], installation_of(settings), days, gate, dry_run=writer.dry_run)


def installation_of(settings: Settings) -> str:
    """Whose entries they are in a table that several operators share."""
    return f"{settings[CLUSTER_NAME]}/{settings[NAMESPACE]}"
