"""The real `hostler` as a process: words, streams and exit codes. No cluster is needed here."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from hostler import __version__
from hostler.capabilities import SETTINGS
from hostler.errors import Exit

HOSTLER = [sys.executable, "-m", "hostler"]
# Which shell this is, nobody knows in the background of one: then its name is taken from the command line.
NAMED_SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


def hostler(*words: str, home: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run it in an empty environment, so that nothing of this machine is read."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "200", **(env or {})}
    return subprocess.run([*HOSTLER, *words], capture_output=True, text=True, env=clean, cwd=home, timeout=60)


def test_version(tmp_path: Path) -> None:
    for words in (("version",), ("--version",)):
        done = hostler(*words, home=tmp_path)
        assert done.returncode == 0
        assert done.stdout.startswith(f"hostler {__version__}")
        assert done.stderr == ""
    assert json.loads(hostler("version", "-o", "json", home=tmp_path).stdout)["hostler"] == __version__


def test_help_lists_every_command(tmp_path: Path) -> None:
    done = hostler("--help", home=tmp_path)
    for command in (
        "run", "version", "config", "pause", "resume", "hold", "release", "drain", "explain", "plan", "status", "crds",
        "rights", "manifests", "sandbox",
    ):  # fmt: skip
        assert re.search(rf"│ {command} ", done.stdout), command


def test_run_help_lists_every_setting_with_its_variable_and_default(tmp_path: Path) -> None:
    text = re.sub(r"[\s│]+", " ", hostler("run", "--help", home=tmp_path).stdout)
    for setting in SETTINGS:
        if setting.has_flag:
            assert f" {setting.flag} " in text, setting.flag
            default = setting.show(setting.default)
            assert f"(env {setting.name}{f'; default {default}' if default else ''})" in text, setting.name
        else:
            assert setting.name in text


def test_config_prints_every_setting_with_its_source_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("max_unavailable: 25%\n")
    env = {"VCENTER_HOST": "vc", "VCENTER_USER": "me", "VCENTER_PASSWORD": "hunter2"}
    words = ("config", "--config", "c.yaml", "--dry-run")
    table = hostler(*words, home=tmp_path, env=env)
    assert table.returncode == 0, table.stderr
    assert re.search(r"MAX_UNAVAILABLE +25% +file c.yaml line 1 +safety", table.stdout)
    assert re.search(r"DRY_RUN +true +flag --dry-run", table.stdout)
    assert re.search(r"VCENTER_PASSWORD +\*\*\* +environment VCENTER_PASSWORD", table.stdout)
    shown = json.loads(hostler(*words, "-o", "json", home=tmp_path, env=env).stdout)
    assert {one["name"] for one in shown["settings"]} == {setting.name for setting in SETTINGS}
    assert "hunter2" not in table.stdout + table.stderr + json.dumps(shown)


def test_a_switch_can_be_turned_off_against_the_environment(tmp_path: Path) -> None:
    done = hostler("config", "--no-dry-run", home=tmp_path, env={"DRY_RUN": "true"})
    assert re.search(r"DRY_RUN +false +flag --dry-run", done.stdout)
    both = hostler("config", "--no-dry-run", "--dry-run", home=tmp_path)
    assert both.returncode == Exit.USAGE
    assert "--dry-run and --no-dry-run exclude each other." in both.stderr


def test_config_shows_what_is_wrong_and_where(tmp_path: Path) -> None:
    done = hostler("config", "--log-format", "xml", home=tmp_path, env={"MAX_UNAVAILABLE": "lots"})
    assert done.returncode == Exit.SETTING
    assert "lots (wrong: must be a number of nodes (3) or a percentage from 0% to 100%)" in done.stdout
    assert 'HOSTLER_LOG_FORMAT (flag --log-format) is "xml"' in done.stderr


def test_a_wrong_setting_stops_the_operator_before_anything_starts(tmp_path: Path) -> None:
    done = hostler("run", "--http-address", "nowhere", home=tmp_path, env={"DRY_RUN": "perhaps"})
    assert done.returncode == Exit.SETTING
    assert done.stdout == ""
    assert "2 settings are wrong" in done.stderr
    assert "HOSTLER_HTTP_ADDRESS (flag --http-address)" in done.stderr
    assert "Nothing was started." in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("rum",), Exit.USAGE, "No such command 'rum'. Did you mean 'run'"),
        (("run", "--max-unavailabel", "3"), Exit.USAGE, "--max-unavailable"),
        (("pause",), Exit.USAGE, "Missing option '--why'."),
        (("version", "--output", "xml"), Exit.USAGE, "'xml'"),
        (("explain", "worker-1"), Exit.USAGE, '"worker-1" is not KIND/NAME.'),
        (("explain", "node/worker-1"), Exit.SETTING, "no cluster to talk to"),
        (("status", "--operator", "http://127.0.0.1:9", "--context", "b"), Exit.USAGE, "name two targets"),
        (("status", "--operator", "127.0.0.1:9"), Exit.SETTING, "HOSTLER_OPERATOR (flag --operator)"),
        (("status", "--operator", "http://127.0.0.1:9"), Exit.UNREACHABLE, "No operator answers at"),
        (("pause", "--why", "x", "--kubeconfig", "none"), Exit.SETTING, "the kubeconfig none does not exist"),
        (("hold", "n", "--why", "x"), Exit.SETTING, "no cluster to talk to"),
        (("crds", "--output", "xml"), Exit.USAGE, "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'name'"),
        (("manifests", "--image", "x", "--only", "maintenance"), Exit.USAGE, "maintenance needs a vCenter"),
        (("manifests", "--image", ""), Exit.USAGE, '"" is not an image'),
        (("manifests", "--image", "x", "--vcenter-secret", "A b"), Exit.USAGE, '"A b" is not the name of a Secret'),
    ],
)
def test_a_mistake_is_one_sentence_and_what_to_do(
    words: tuple[str, ...], code: Exit, said: str, tmp_path: Path
) -> None:
    done = hostler(*words, home=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("hostler: ")


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    return str(path)


def test_an_api_server_that_is_not_there(tmp_path: Path) -> None:
    done = hostler("pause", "--why", "x", "--kubeconfig", kubeconfig(tmp_path, "http://127.0.0.1:9"), home=tmp_path)
    assert done.returncode == Exit.UNREACHABLE
    assert "the API server at http://127.0.0.1:9 refuses the connection" in done.stderr
    assert "Traceback" not in done.stderr


STRANGERS = {
    "portal": (200, b"<html>Please log in</html>"),
    "balancer": (404, b"default backend - 404"),
    "service": (200, b'{"status": "ok"}'),
}


@pytest.mark.parametrize(
    ("stranger", "words"),
    [
        *((stranger, ("hold", "n", "--why", "x")) for stranger in STRANGERS),
        ("portal", ("bundle",)),
        ("balancer", ("resume",)),
        ("service", ("version", "--server")),
    ],
)
def test_something_else_at_the_api_server_s_address(tmp_path: Path, stranger: str, words: tuple[str, ...]) -> None:
    """Neither a bug of ours, nor a cluster in which there is nothing."""

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = STRANGERS[stranger]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        done = hostler(*words, "--kubeconfig", path, home=tmp_path)
        server.shutdown()
        thread.join()
    assert (done.returncode, done.stdout) == (Exit.UNREACHABLE, ""), done.stderr
    assert "is not a Kubernetes API server" in done.stderr


def test_the_stop_button_works_whatever_else_is_wrong(tmp_path: Path) -> None:
    """A broken variable of the operator must not keep a person from pausing: it fails only for want of a cluster."""
    env = {"DRY_RUN": "perhaps", "HOSTLER_NONSENSE": "1", "POLL_INTERVAL_SECONDS": "often"}
    done = hostler("pause", "--why", "x", home=tmp_path, env=env)
    assert "no cluster to talk to" in done.stderr


def test_crds_is_yaml_that_kubectl_can_apply(tmp_path: Path) -> None:
    done = hostler("crds", home=tmp_path)
    made = list(yaml.safe_load_all(done.stdout))
    assert [one["metadata"]["name"] for one in made] == ["fleets.hostler.dev", "pauses.hostler.dev"]
    assert done.stderr == ""
    assert json.loads(hostler("crds", "-o", "json", home=tmp_path).stdout)["items"] == made


@pytest.mark.parametrize("words", ["crds", "run --help", "--show-completion bash"])
def test_a_closed_pipe_is_no_error(tmp_path: Path, words: str) -> None:
    line = " ".join(HOSTLER)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **NAMED_SHELL}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} {words} | :"], capture_output=True, text=True, env=env, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_coloured_in_a_pipe_or_with_no_color(tmp_path: Path) -> None:
    for env in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        done = hostler("config", home=tmp_path, env=env)
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", done.stdout + done.stderr)


def test_ctrl_c_is_130_and_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        process = subprocess.Popen(
            [*HOSTLER, "pause", "--why", "x", "--kubeconfig", path],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )  # fmt: skip
        silent.settimeout(30)
        peer, _ = silent.accept()
        with peer:
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED
    assert (out, err) == ("", "")


def test_a_bug_is_one_line_and_a_traceback_only_on_demand(tmp_path: Path) -> None:
    """Provoked from outside: a Python that cannot import one of our dependencies."""
    (tmp_path / "yaml.py").write_text("raise RuntimeError('broken install')\n")
    env = {"PYTHONPATH": str(tmp_path)}
    quiet = hostler("crds", home=tmp_path, env=env)
    assert quiet.returncode == Exit.FAILED
    assert f"This is a bug in Hostler {__version__}: RuntimeError: broken install" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    for loud in (
        hostler("crds", home=tmp_path, env=env | {"HOSTLER_DEBUG": "true"}),
        hostler("--debug", "crds", home=tmp_path, env=env),
    ):
        assert "Traceback" in loud.stderr


@pytest.mark.parametrize(("says", "code"), [("1", 1), ("7", 7), ("'no yaml here'", 1), ("", 0)])
def test_a_library_that_ends_the_program_keeps_its_code(tmp_path: Path, says: str, code: int) -> None:
    """Only a reader of our words who has gone is no failure; a library may have others."""
    (tmp_path / "yaml.py").write_text(f"raise SystemExit({says})\n")
    done = hostler("crds", home=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (code, "")


def test_completion_script_and_words(tmp_path: Path) -> None:
    script = hostler("--show-completion", "bash", home=tmp_path, env=NAMED_SHELL)
    assert script.returncode == 0
    assert "_HOSTLER_COMPLETE=complete_bash" in script.stdout
    env = {"_HOSTLER_COMPLETE": "complete_bash", "COMP_WORDS": "hostler run --log-format ", "COMP_CWORD": "3"}
    done = hostler(home=tmp_path, env=env)
    assert {"auto", "json", "console"} <= set(done.stdout.split())


def test_start_up_imports_nothing_heavy(tmp_path: Path) -> None:
    """Fast start-up is kept by what is not imported; a timing would only measure the machine."""
    code = (
        "import sys; sys.argv = ['hostler', 'version']\n"
        "from hostler.cli.main import execute\n"
        "execute(['version'])\n"
        "print(sorted({'aiohttp', 'yaml', 'cryptography', 'rich', 'msgspec', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_manifests_carry_every_setting_that_was_given(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("max_unavailable: 3\nmetal_selection: spread\noperator_namespace: elsewhere\n")
    words = ("--image", "r/h:1", "--only", "metal", "--config", str(config), "--metal-workers", "7")
    done = hostler("manifests", *words, home=tmp_path)
    objects = list(yaml.safe_load_all(done.stdout))
    (told,) = [one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "hostler-settings"]
    assert told["metadata"]["namespace"] == "elsewhere"
    given = {"MAX_UNAVAILABLE": "3", "HOSTLER_METAL_SELECTION": "spread", "HOSTLER_METAL_WORKERS": "7"}
    assert given.items() <= told["data"].items()
    assert "HOSTLER_OPERATOR_NAMESPACE" not in told["data"]


def test_without_a_cluster_the_doctor_says_so_once_and_a_bundle_of_nothing_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    cluster = {"name": "a", "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}
    users = [{"name": "a", "user": {"token": "x"}}]
    config = {"current-context": "a", "contexts": [context], "clusters": [cluster], "users": users}
    (tmp_path / "config").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    done = hostler("doctor", "--kubeconfig", "config", "-o", "json", home=tmp_path)
    (finding,) = json.loads(done.stdout)
    assert "refuses the connection" in finding["why"]
    assert done.returncode == Exit.FAILED
    done = hostler("bundle", "--kubeconfig", "config", home=tmp_path)
    assert done.returncode == Exit.UNREACHABLE
    assert "refuses the connection: nothing listens there" in done.stderr
    assert not (tmp_path / "hostler-bundle.tar.gz").exists()
