"""Bad inputs over every command: one sentence that says what is wrong, the right exit code, no traceback, no hang.

What needs an API server to be wrong is in tests/real/runtime/test_cli_exit_codes.py.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import yaml

from hostler.cli.main import execute
from hostler.errors import Exit
from tests.unit.command_table import COMMANDS

U, S, R, N = Exit.USAGE, Exit.SETTING, Exit.REFUSED, Exit.UNREACHABLE
# What is typed, the exit code, and what the sentence has to name. DEAD is a kubeconfig whose server does not answer,
# BROKEN one that is no kubeconfig, EMPTY an empty file, FOLDER a folder, FILE a file, GONE no file at all.
BAD: tuple[tuple[str, Exit, str], ...] = (
    # the program itself
    ("nonsense", U, "nonsense"),
    ("--nonsense", U, "--nonsense"),
    ("stat", U, "stat"),
    ("status status", U, "status"),
    ("status --output xml", U, "xml"),
    ("status --context", U, "--context"),
    ("metal nonsense", U, "nonsense"),
    # settings
    ("run --only nonsense", S, "nonsense"),
    ("run --max-unavailable -1", S, "MAX_UNAVAILABLE"),
    ("run --max-unavailable 0%%", S, "MAX_UNAVAILABLE"),
    ("run --config GONE", S, "GONE"),
    ("run --config FOLDER", S, "FOLDER"),
    ("run --http-address nowhere:99999999", S, "HOSTLER_HTTP_ADDRESS"),
    ("run --dry-run --no-dry-run", U, "--no-dry-run"),
    ("run --operator-namespace Not_A_Name", S, "HOSTLER_OPERATOR_NAMESPACE"),
    ("run --namespace x", U, "--namespace"),
    ("run extra", U, "extra"),
    ("provider --namespace", U, "--namespace"),
    ("provider --namespace A_B", S, "A_B"),
    ("config --config GONE", S, "GONE"),
    ("config --sort-by nonsense", U, "nonsense"),
    ("config --running --operator http://127.0.0.1:9", N, "127.0.0.1:9"),
    # which cluster
    ("status", S, "no cluster to talk to"),
    ("version --server --kubeconfig GONE", S, "GONE"),
    ("version --server --kubeconfig FOLDER", S, "FOLDER"),
    ("version --server --kubeconfig BROKEN", S, "BROKEN"),
    ("version --server --kubeconfig EMPTY", S, "EMPTY"),
    ("version --server --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("version --server --kubeconfig DEAD --context other", S, "other"),
    ("version extra", U, "extra"),
    ("hosts --operator http://127.0.0.1:9 --kubeconfig DEAD", U, "two targets"),
    ("hosts --operator nowhere", S, "HOSTLER_OPERATOR"),
    ("hosts --operator ftp://127.0.0.1:9", S, "HOSTLER_OPERATOR"),
    # lists
    ("hosts --state asleep", U, "asleep"),
    ("hosts --kind bicycle", U, "bicycle"),
    ("hosts -l 'a in (' --operator http://127.0.0.1:9", U, "a in ("),
    ("hosts --sort-by height", U, "height"),
    ("fleet --sort-by ''x", U, "no column"),
    ("host", U, "NAME"),
    ("host a b", U, "b"),
    ("host gpu-1 --operator http://127.0.0.1:9", N, "127.0.0.1:9"),
    ("operations --watch=maybe", U, "--watch"),
    ("operations --operator http://127.0.0.1:9 --watch", N, "127.0.0.1:9"),
    ("history --since yesterday", U, "yesterday"),
    ("history --since 5w", U, "5w"),
    ("history --most 0", U, "--most"),
    ("history show a b", U, "b"),
    ("history export --since nonsense", U, "nonsense"),
    ("maintenance status -l =", U, "="),
    ("maintenance plan", U, "ESXI-HOST"),
    ("maintenance plan esx1 --operator http://127.0.0.1:9", N, "127.0.0.1:9"),
    ("metal hosts --in rack-a", U, "--in"),
    ("metal hosts --sort-by weight", U, "weight"),
    ("metal hosts -n", U, "-n"),
    ("metal hosts -A --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("metal capacity", U, "TEMPLATE"),
    ("metal capacity a/b -n c --kubeconfig DEAD", U, "namespace c"),
    ("metal takeover", U, "--check"),
    ("metal takeover --check --metal-namespaces A_B", S, "HOSTLER_METAL_NAMESPACES"),
    ("metal withdraw --yes --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("ingress status --ingress-workloads nonsense", S, "nonsense"),
    ("ingress status --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("platform status --uninitialised-grace-seconds -5", S, "UNINITIALISED_GRACE_SECONDS"),
    ("platform withdraw --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("platform remove-driver", U, "DRIVER"),
    ("reclaim status a b", U, "b"),
    ("reclaim status --in x", U, "--in"),
    ("reclaim start", U, "AGENT"),
    ("reclaim cancel a/b --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("reclaim retry", U, "AGENT"),
    ("reclaim token a/b --for never", U, "never"),
    ("reclaim token a/b --for 0s", U, "0s"),
    ("join csrs --sort-by nonsense", U, "nonsense"),
    ("join expect Not_A_Name", U, "Not_A_Name"),
    ("join expect w --address nowhere", U, "nowhere"),
    ("join expect w --for forever", U, "forever"),
    ("join approve", U, "CSR"),
    ("join approve csr-1 --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("join serve --listen nowhere", U, "nowhere"),
    ("join ignition --out FOLDER/none/worker.ign --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("join cloud-init", U, "NAME"),
    ("join cloud-init w --label nonsense=a=b --kubeconfig DEAD", U, "nonsense"),
    ("join guide w extra", U, "extra"),
    # one thing
    ("explain", U, "KIND/NAME"),
    ("explain node", U, "KIND/NAME"),
    ("explain /x", U, "KIND/NAME"),
    ("plan node/", U, "KIND/NAME"),
    ("explain bmh/a/b -n c --operator http://127.0.0.1:9", U, "namespace c"),
    ("explain node/x --operator http://127.0.0.1:9", N, "127.0.0.1:9"),
    # what changes something
    ("hold", U, "--why"),
    ("hold --why x", U, "name at least one node"),
    ("hold n --why ' '", U, "--why is empty"),
    ("hold n -l a=b --why x", U, "by name or by -l"),
    ("hold -l '!' --why x", U, "!"),
    ("hold n --why x --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("release", U, "name at least one node"),
    ("release n --holder a --all", U, "--holder"),
    ("release --rack ''", U, "name at least one node"),
    ("drain n --timeout 0", U, "0"),
    ("drain n --timeout soon", U, "soon"),
    ("drain n --max-unavailable many", S, "MAX_UNAVAILABLE"),
    ("pause", U, "--why"),
    ("pause --why ''", U, "--why is empty"),
    ("pause --why x --wait long", U, "long"),
    ("pause --why x --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("resume everything", U, "everything"),
    # files
    ("bundle --file FILE", R, "FILE"),
    ("bundle --file GONE/none.tar.gz --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("doctor --kubeconfig GONE", S, "GONE"),
    ("doctor --kubeconfig DEAD -o nonsense", U, "nonsense"),
    ("crds -o toml", U, "toml"),
    ("crds --apply --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("rights --only nonsense", S, "nonsense"),
    ("rights -o xml", U, "xml"),
    ("manifests", U, "--image"),
    ("manifests --image 'a b'", U, "a b"),
    ("manifests --image x --only maintenance", U, "--vcenter-secret"),
    ("manifests --image x --only maintenance --vcenter-secret A_B", U, "A_B"),
    ("agent --write FOLDER", S, "FOLDER"),
    ("agent --nonsense", U, "--nonsense"),
    ("install plan GONE", S, "GONE"),
    ("install plan FOLDER", S, "FOLDER"),
    ("install plan EMPTY", S, "EMPTY"),
    ("install manifests FILE --dir FOLDER", U, "--root-ca"),
    ("install manifests GONE --dir FOLDER --root-ca GONE", S, "GONE"),
    ("vcenter show --kubeconfig DEAD", N, "127.0.0.1:9"),
    ("vcenter trust", U, "HOST"),
    ("vcenter trust 'a b'", U, "a b"),
    ("vcenter trust vc:port", U, "vc:port"),
    ("vcenter trust vc --sha256 nonsense", U, "--sha256"),
    ("vcenter trust 127.0.0.1:9", N, "127.0.0.1:9"),
    ("web --port 99999", U, "--port"),
    ("web --port x", U, "valid integer"),
    ("web --operator nowhere", S, "HOSTLER_OPERATOR"),
    # the sandbox
    ("demo --nonsense", U, "--nonsense"),
    ("sandbox status --dir GONE", N, "GONE"),
    ("sandbox down --dir GONE", N, "GONE"),
    ("sandbox up --fleet mixed --dir FOLDER", S, "FOLDER"),
    ("sandbox up --crds nonsense", U, "nonsense"),
    ("sandbox up --with nonsense", U, "nonsense"),
    ("sandbox up --node-monitor-period-seconds 0", U, "--node-monitor-period-seconds"),
    ("sandbox build --with nonsense", U, "nonsense"),
    ("sandbox power sideways vm-1", U, "sideways"),
    ("sandbox power off", U, "'vm'"),
    ("sandbox maintenance enter", U, "'host'"),
    ("sandbox maintenance leave esx1", U, "leave"),
    ("sandbox fault X Y --delay late", U, "late"),
    ("sandbox crash esx1 --dir GONE", N, "GONE"),
    ("sandbox recover --dir GONE", U, "'host'"),
    ("sandbox workload c1", U, "--from"),
    ("sandbox workload c1 --from GONE --dir GONE", N, "GONE"),
    ("sandbox kubectl get nodes --dir", U, "--dir"),
    ("sandbox clusterctl describe", N, "sandbox"),
)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty home, and the files that the inputs name."""
    for name in list(os.environ):
        if name.startswith(("HOSTLER_", "KUBE", "VCENTER", "HUB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    found = {name: str(tmp_path / name) for name in ("DEAD", "BROKEN", "EMPTY", "FOLDER", "FILE", "GONE")}
    Path(found["FOLDER"]).mkdir()
    Path(found["FOLDER"], "occupied").touch()
    Path(found["EMPTY"]).touch()
    Path(found["FILE"]).write_text("anything")
    Path(found["BROKEN"]).write_text("clusters: [}")
    Path(found["DEAD"]).write_text(
        yaml.safe_dump({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        })
    )  # fmt: skip
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("typed", "code", "names"), BAD, ids=[typed for typed, _, _ in BAD])
def test_a_bad_input_is_one_sentence(
    typed: str, code: Exit, names: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(typed)
    for name, path in places.items():
        words = [word.replace(name, path) for word in words]
        names = names.replace(name, path)
    ended = execute(words)
    printed = capsys.readouterr()
    assert ended == code, printed.err
    assert printed.out == ""
    first = printed.err.splitlines()[0]
    assert first.startswith("hostler: "), printed.err
    assert names in printed.err, printed.err
    assert "Traceback" not in printed.err
    assert "This is a bug" not in printed.err
    assert len(printed.err.splitlines()) <= 4, "a sentence, and what to do"


def test_there_are_a_hundred_and_every_command_is_among_them() -> None:
    assert len(BAD) >= 100
    tried = {name for name in COMMANDS for typed, _, _ in BAD if f"{typed} ".startswith(f"{name} ")}
    # `history` alone is `history show`.
    assert set(COMMANDS) - tried <= {"history show"}
