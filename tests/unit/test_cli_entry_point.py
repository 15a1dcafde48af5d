"""`hostler run` without the libraries of the command line: what is read is what they would have read."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from hostler.capabilities import SETTINGS
from hostler.cli import flags
from hostler.cli.entry_point import plain_flags
from hostler.settings.model import AnySetting

FLAGS = [one for one in SETTINGS if one.has_flag]
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12).filter(
    lambda one: one[:1] != "-"
)


@st.composite
def plain_words(draw: st.DrawFn) -> list[str]:
    def spelled(setting: AnySetting) -> list[str]:
        if setting.reader.switch:
            return [draw(st.sampled_from([setting.flag, f"--no-{setting.flag[2:]}"]))]
        value = draw(VALUES)
        return [f"{setting.flag}={value}"] if draw(st.booleans()) else [setting.flag, value]

    chosen = draw(st.lists(st.sampled_from(FLAGS), unique_by=lambda one: one.name, max_size=6))
    return ["run", *(word for setting in chosen for word in spelled(setting))]


@pytest.fixture(scope="module")
def read_by_typer() -> Callable[[list[str]], dict[str, str]]:
    app, read = typer.Typer(), list[dict[str, str]]()

    def keep(given: Mapping[str, str], _: Any, *, table: Any) -> None:
        read.append(dict(given))

    @app.command()
    @flags.takes(*SETTINGS, read=keep)
    def run(_: Any) -> None: ...

    @app.command()
    def another() -> None: ...

    command = typer.main.get_command(app)

    def answer(words: list[str]) -> dict[str, str]:
        command.main(args=words, standalone_mode=False)
        return read.pop()

    return answer


@effort(max_examples=40, deadline=None)
@given(words=plain_words())
def test_plain_flags_are_read_as_the_library_reads_them(
    words: list[str], read_by_typer: Callable[[list[str]], dict[str, str]]
) -> None:
    assert plain_flags(words) == read_by_typer(words)


@pytest.mark.parametrize(
    "words",
    [
        *([], ["version"], ["--debug", "run"], ["run", "--help"], ["run", "-h"], ["run", "extra"], ["run", "--"]),
        *(["run", "--onyl", "metal"], ["run", "--only"], ["run", "--only", "--dry-run"], ["run", "--dry-run=true"]),
        *(
            ["run", "--only", "metal", "--only", "join"],
            ["run", "--dry-run", "--no-dry-run"],
            ["run", "--no-only", "x"],
        ),
        *(
            ["provider", "--help"],
            ["provider", "--namespace", "a"],
            ["provider", "--watch-filter=a", "--watch-filter=b"],
        ),
    ],
)
def test_anything_else_is_left_to_the_library(words: list[str]) -> None:
    assert plain_flags(words) is None


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ([], {}),
        (["--namespace=", "--watch-filter= "], {}),
        (["--namespace=a,b"], {"metal_namespaces": "a,b"}),
        (["--watch-filter=mine", "--namespace=a"], {"metal_namespaces": "a", "metal_watch_filter": "mine"}),
    ],
)
def test_a_provider_is_metal_alone_in_its_scope(words: list[str], scope: dict[str, str]) -> None:
    assert plain_flags(["provider", *words]) == {"only": "metal", **scope}


def test_an_operator_carries_no_library_of_the_command_line(tmp_path: Any) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['hostler', 'run', '--only', 'metal', '--kubeconfig', sys.argv[1]]\n"
        "try:\n    runpy.run_module('hostler', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    print(end.code, sorted({'typer', 'click', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "none")]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert "none does not exist" in done.stderr
    assert done.stdout.split(" ", 1)[1] == "[]\n", done.stdout


def test_told_to_stop_while_the_api_server_does_not_answer_it_stops(tmp_path: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = {"name": "a", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        users = [{"name": "a", "user": {"token": "x"}}]
        config = {"current-context": "a", "contexts": [context], "clusters": [cluster], "users": users}
        (tmp_path / "config").write_text(json.dumps(config))
        command = [sys.executable, "-m", "hostler", "run", "--kubeconfig", str(tmp_path / "config")]
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
            try:
                silent.settimeout(60)
                asked = silent.accept()[0]
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=60)
                asked.close()
            finally:
                process.kill()
    assert "stopping" in said
    assert process.returncode == 0, said


def test_imported_lightly_nothing_is_lost_but_what_nobody_uses(tmp_path: Any) -> None:
    code = (
        "import os, ssl\n"
        "from hostler import lean_imports\n"
        "before = dict(os.environ)\n"
        "lean_imports.import_lean()\n"
        "assert dict(os.environ) == before\n"
        "import rich, structlog\n"  # hidden only from structlog
        "from aiohttp import connector\n"
        "trusted = connector._SSL_CONTEXT_VERIFIED\n"
        "print(structlog.dev.rich, rich.__name__, trusted.cert_store_stats()['x509'], trusted.verify_mode.name)"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SSL_CERT_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout == "None rich 0 CERT_REQUIRED\n", done.stderr
