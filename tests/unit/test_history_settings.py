"""Where the history is kept: the settings, what doctor says of it, and a password that nobody sees."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hostler.capabilities import read_settings
from hostler.cli.bundle import _secrets
from hostler.errors import Complaint
from hostler.explain.doctor import Finding, Level
from hostler.explain.wire import config_of
from hostler.history.findings import findings
from hostler.history.schema import COMMENT, VERSION, version_of
from hostler.history.settings import HISTORY_URL
from hostler.history.wire import HistoryAnswer
from hostler.host.facts import Known, Unknown

URL = "postgresql://hostler:p%40ss-word@db.example.com/hostler?sslmode=verify-full"


@pytest.mark.parametrize("url", [URL, "postgres://db/hostler", "postgresql:///hostler?host=/run/postgresql"])
def test_a_url_of_postgresql_is_taken(url: str) -> None:
    assert read_settings({}, {"HOSTLER_HISTORY_URL": url, "HOSTLER_CLUSTER_NAME": "prod"})[HISTORY_URL] == url


@pytest.mark.parametrize("url", ["mysql://u:secret@db/x", "postgresql://u:sec@ret@db/x", "db", "postgresql:///x"])
def test_another_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(Complaint, match="HOSTLER_HISTORY_URL") as refused:
        read_settings({}, {"HOSTLER_HISTORY_URL": url, "HOSTLER_CLUSTER_NAME": "prod"})
    assert "sec" not in str(refused.value).replace("special", "")


def test_a_database_needs_the_name_of_the_cluster() -> None:
    with pytest.raises(Complaint, match="HOSTLER_CLUSTER_NAME must be"):
        read_settings({}, {"HOSTLER_HISTORY_URL": URL})


def test_the_password_is_hidden_in_config_and_bundle() -> None:
    settings = read_settings({}, {"HOSTLER_HISTORY_URL": URL, "HOSTLER_CLUSTER_NAME": "prod"})
    assert "word" not in str(config_of(settings).settings)
    assert {"p@ss-word", "p%40ss-word", URL} <= _secrets(settings)


def test_without_a_database_its_client_is_not_loaded() -> None:
    code = "import sys, hostler.operator; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_schema_is_read_from_the_comment_of_the_table() -> None:
    assert [version_of(found) for found in (None, COMMENT.format(VERSION), COMMENT.format(12), "", "Payroll")] == [
        0, VERSION, 12, None, None,
    ]  # fmt: skip


def test_doctor_tells_why_the_history_is_not_stored() -> None:
    def found(asked: Known[HistoryAnswer] | Unknown | None, here: str | None = None) -> list[Finding]:
        return list(findings(asked, here))

    assert found(None) == found(Known(HistoryAnswer((), {}, complete=True), 1.0)) == []
    (told,) = found(Known(HistoryAnswer((), {}, complete=True, trouble="It is full."), 1.0))
    assert (told.level, told.what, told.why) == (Level.PROBLEM, "history", "It is full.")
    (unread,) = found(Unknown("It cannot be read."))
    assert (unread.level, unread.why) == (Level.WARNING, "It cannot be read.")
    assert [one.level for one in found(None, "No route.") + found(None, "")] == [Level.PROBLEM, Level.FINE]
