"""Tokens that open one thing, and what an agent's answers become: tables and fuzz, no network."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import string
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from hostler.agent import steps
from hostler.agent.hub import BASE as AGENTS_BASE
from hostler.agent.refusal import Reason
from hostler.apis.assisted import AGENT, INFRA_ENV, INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.host.facts import Unknown
from hostler.instant import iso
from hostler.kube.metrics import Metrics
from hostler.kube.watch import Watch
from hostler.reclaim.action_executor import ActionExecutor
from hostler.reclaim.artifacts import BootPolicy
from hostler.reclaim.decision import Withdraw
from hostler.reclaim.facts import CANCEL, HASHES, PROGRESS, REGISTRATION, REPORT, hashes_of, host_of
from hostler.reclaim.hub import artifact_files
from hostler.reclaim.hub import server as hub_module
from hostler.reclaim.hub import tokens as tokens_module
from hostler.reclaim.hub.artifact_files import ArtifactFiles, Unreadable
from hostler.reclaim.hub.instructions import (
    DOWNLOAD,
    REBOOT,
    Reply,
    make_instructions,
    note_registration,
    note_reply,
    note_withheld,
)
from hostler.reclaim.hub.server import BURST, Malformed, Rates, decode_body
from hostler.reclaim.hub.tokens import Claims, Denied, Keys, Opens
from hostler.reclaim.model import Report, State, StepFailure, stage_key, step_id
from hostler.reclaim.observe import Observer
from hostler.reclaim.quoting import LIMIT, clean_text, quote_text
from tests.unit.hub_world import ENV_TOKEN, HOST_TOKEN, INSTRUCTIONS, KEYS, NOW, hub_with, listening


def test_a_token_opens_its_own_host_and_nothing_else() -> None:
    found = KEYS.check(HOST_TOKEN, Opens.HOST, "ie-1", "host-1", NOW)
    assert isinstance(found, Claims)
    assert (found.namespace, found.infra_env_name, found.host) == ("ns", "env", "host-1")
    assert isinstance(KEYS.check(ENV_TOKEN, Opens.INFRA_ENV, "ie-1", "", NOW), Claims)


@pytest.mark.parametrize(
    ("token", "opens", "infra_env", "host", "now", "status"),
    [
        (HOST_TOKEN, Opens.HOST, "ie-1", "host-2", NOW, 403),
        (HOST_TOKEN, Opens.HOST, "ie-2", "host-1", NOW, 403),
        (HOST_TOKEN, Opens.INFRA_ENV, "ie-1", "", NOW, 403),  # the pod in the old system can never register
        (ENV_TOKEN, Opens.HOST, "ie-1", "", NOW, 403),
        (ENV_TOKEN, Opens.INFRA_ENV, "ie-2", "", NOW, 403),
        (HOST_TOKEN, Opens.HOST, "ie-1", "host-1", NOW + 60, 401),
        ("", Opens.HOST, "ie-1", "host-1", NOW, 401),
        ("x", Opens.HOST, "ie-1", "host-1", NOW, 401),
        (HOST_TOKEN + "A", Opens.HOST, "ie-1", "host-1", NOW, 401),
        (HOST_TOKEN * 40, Opens.HOST, "ie-1", "host-1", NOW, 401),
    ],
)
def test_every_other_use_is_denied(
    token: str, opens: Opens, infra_env: str, host: str, now: float, status: int
) -> None:
    found = KEYS.check(token, opens, infra_env, host, now)
    assert isinstance(found, Denied)
    assert found.status == status


def test_a_token_of_another_hub_or_with_another_algorithm_is_none() -> None:
    other = Keys(Keys.make()).for_host("ns", "ie-1", "env", "host-1", now=NOW, seconds=60)
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode() + "." + HOST_TOKEN.split(".")[1] + "."
    for token in (other, none):
        assert isinstance(KEYS.check(token, Opens.HOST, "ie-1", "host-1", NOW), Denied)


def test_a_token_has_one_spelling() -> None:
    """The last character of a signature has bits that mean nothing."""
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    last = letters.index(HOST_TOKEN[-1])
    same = [letters[one] for one in range(64) if one >> 4 == last >> 4 and one != last]
    assert len(same) == 15
    for letter in same:
        assert isinstance(KEYS.check(HOST_TOKEN[:-1] + letter, Opens.HOST, "ie-1", "host-1", NOW), Denied)


def test_any_replica_checks_with_the_key_from_the_secret() -> None:
    pem = Keys.make()
    token = Keys(pem).for_host("ns", "ie-1", "env", "host-1", now=NOW, seconds=60)
    assert isinstance(Keys(pem).check(token, Opens.HOST, "ie-1", "host-1", NOW), Claims)


def test_a_token_that_was_good_once_opens_no_more_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """That its signature is good is remembered, of so many tokens; nothing else is."""
    monkeypatch.setattr(tokens_module, "REMEMBERED", 2)
    keys = Keys(Keys.make())
    several = [keys.for_host("ns", "ie-1", "env", f"host-{one}", now=NOW, seconds=60) for one in range(5)]
    for _ in range(2):
        for number, token in enumerate(several):
            assert isinstance(keys.check(token, Opens.HOST, "ie-1", f"host-{number}", NOW), Claims)
            for opens, infra_env, host, now, status in (
                (Opens.HOST, "ie-1", "host-9", NOW, 403), (Opens.HOST, "ie-2", f"host-{number}", NOW, 403),
                (Opens.INFRA_ENV, "ie-1", "", NOW, 403), (Opens.HOST, "ie-1", f"host-{number}", NOW + 60, 401),
            ):  # fmt: skip
                denied = keys.check(token, opens, infra_env, host, now)
                assert isinstance(denied, Denied)
                assert denied.status == status
    assert len(keys._good) == 2
    assert isinstance(Keys(Keys.make()).check(several[4], Opens.HOST, "ie-1", "host-4", NOW), Denied)


@given(st.data())
def test_no_changed_token_gets_in(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(HOST_TOKEN) - 1))
    new = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = HOST_TOKEN[:at] + new + HOST_TOKEN[at + 1 :]
    if changed != HOST_TOKEN:
        assert isinstance(KEYS.check(changed, Opens.HOST, "ie-1", "host-1", NOW), Denied)


@given(st.text(max_size=300), st.text(max_size=20), st.text(max_size=20))
def test_no_text_crashes_the_check(token: str, infra_env: str, host: str) -> None:
    assert isinstance(KEYS.check(token, Opens.HOST, infra_env, host, NOW), Denied)


# -- instructions and answers


BOOT = BootPolicy(hub_url="https://hub")


def agent(state: str = State.RECLAIMING, **annotations: str) -> Agent:
    return msgspec.convert(
        {
            "metadata": {"name": "host-1", "namespace": "ns", "uid": "u-1", "annotations": annotations},
            "status": {"debugInfo": {"state": state}, "progress": {"stageStartTime": "2026-01-01T00:00:00Z"}},
        },
        Agent,
    )


def environment(**spec: Any) -> InfraEnv:
    return msgspec.convert(
        {
            "spec": spec,
            "status": {"bootArtifacts": {"kernel": "https://k", "initrd": "https://i", "rootfs": "https://r"}},
        },
        InfraEnv,
    )


def step(state: str) -> str:
    return step_id("u-1", state, "2026-01-01T00:00:00Z")


def test_the_words_are_the_agents_own() -> None:
    assert (DOWNLOAD, REBOOT) == (steps.DOWNLOAD, steps.REBOOT)
    assert hub_module.BASE.startswith(AGENTS_BASE)


def test_reclaiming_downloads_and_rebooting_reboots() -> None:
    told = make_instructions(agent(), environment(kernelArguments=[{"operation": "append", "value": "ip=dhcp"}]), BOOT)
    assert (told["next_instruction_seconds"], told["post_step_action"]) == (60, "continue")
    (one,) = told["instructions"]
    assert (one["step_type"], one["step_id"]) == ("download-boot-artifacts", step(State.RECLAIMING))
    assert json.loads(one["args"][0]) == {
        "kernel_url": "https://k",
        "initrd_url": "https://i",
        "rootfs_url": "https://r",
        "host_fs_mount_dir": "/host",
        "kernel_arguments": [{"operation": "append", "value": "ip=dhcp"}],
    }
    told = make_instructions(agent(State.REBOOTING), environment(), BOOT)
    assert (told["next_instruction_seconds"], told["post_step_action"]) == (120, "exit")
    assert told["instructions"][0]["step_type"] == "reboot-for-reclaim"


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"clusterDeploymentName": {"name": "old", "namespace": "ns"}}},
        {"metadata": {"annotations": {CANCEL: "now"}}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_nobody_is_restarted_who_changed_their_mind_before_the_agent_asked(change: dict[str, Any]) -> None:
    body = msgspec.to_builtins(agent(State.REBOOTING))
    body["metadata"] |= change.get("metadata", {})
    found = msgspec.convert({**body, "spec": change.get("spec", {})}, Agent)
    told = make_instructions(found, environment(), BOOT)
    assert (told["instructions"], told["post_step_action"]) == ([], "exit")
    # The stage ends with that, once.
    changes = note_withheld(found)
    body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), **changes}
    after = msgspec.convert({**body, "spec": change.get("spec", {})}, Agent)
    report = host_of(after).report
    assert report is not None
    assert (report.step_id, report.exit_code, report.reason) == (step(State.REBOOTING), 1, "Cancelled")
    assert note_withheld(after) == {}


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ({"spec": {"clusterDeploymentName": {"name": "old", "namespace": "ns"}}}, True),
        ({"metadata": {"annotations": {CANCEL: "now"}}}, True),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"status": {"debugInfo": {"state": State.PENDING}}}, False),
    ],
)
def test_a_host_that_goes_down_already_is_not_called_off_for_a_wish(change: dict[str, Any], goes_on: bool) -> None:
    """Else its entry would be taken back while it goes down, and it be restarted for nothing."""
    rebooting = agent(State.REBOOTING)
    said = note_reply(rebooting, Reply(REBOOT, step(State.REBOOTING), 0))
    body = msgspec.to_builtins(rebooting)
    body["metadata"] |= change.get("metadata", {})
    body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), **said}
    body["status"] |= change.get("status", {})
    found = msgspec.convert({**body, "spec": change.get("spec", {})}, Agent)
    assert bool(make_instructions(found, environment(), BOOT)["instructions"]) == goes_on
    assert bool(note_withheld(found)) == (not goes_on and found.status.debug_info.state == State.REBOOTING)
    # That it did not go down after all, or came back, is still said and counts.
    failed = note_reply(found, Reply(REBOOT, step(State.REBOOTING), 1, '{"reason": "BootedBack"}'))
    assert bool(failed) == (found.status.debug_info.state == State.REBOOTING)


def test_a_restart_nobody_called_off_is_given() -> None:
    assert note_withheld(agent(State.REBOOTING)) == {}
    assert note_withheld(agent(State.RECLAIMING, **{CANCEL: "now"})) == {}


@pytest.mark.parametrize("state", [one for one in State if one not in (State.RECLAIMING, State.REBOOTING)] + ["", "x"])
def test_every_other_state_gives_nothing_and_the_end(state: str) -> None:
    told = make_instructions(agent(state), environment(), BOOT)
    assert (told["instructions"], told["post_step_action"]) == ([], "exit")


def test_artifacts_this_hub_has_are_given_by_its_own_address() -> None:
    told = make_instructions(agent(), environment(), BOOT, {"initrd": "https://hub/initrd"})
    arguments = json.loads(told["instructions"][0]["args"][0])
    assert (arguments["kernel_url"], arguments["initrd_url"]) == ("https://k", "https://hub/initrd")


def test_hashes_are_the_hubs_own_or_the_owners_word() -> None:
    """Of what is served here, the owner of other addresses has said nothing."""
    notes = {HASHES["kernel"]: " aa\n", HASHES["initrd"]: "bb"}
    noted_down = msgspec.convert({"metadata": {"annotations": notes}}, InfraEnv)
    assert hashes_of(noted_down) == {"kernel_sha256": "aa", "initrd_sha256": "bb"}
    assert hashes_of(noted_down, {"kernel": "https://hub/kernel"}) == {"initrd_sha256": "bb"}
    served = {"kernel": "https://hub/kernel", "kernel_sha256": "cc"}
    assert hashes_of(noted_down, served) == {"kernel_sha256": "cc", "initrd_sha256": "bb"}
    assert hashes_of(environment()) == {}


@pytest.mark.parametrize(
    ("unverified", "said"),
    [(["kernel", "initrd"], "Not verified: kernel and initrd"), (["initrd", "x"], "Not verified: initrd,"), ([], "")],
)
def test_what_was_not_verified_is_said_before_the_host_restarts(unverified: list[str], said: str) -> None:
    reply = Reply(DOWNLOAD, step(State.RECLAIMING), 0, json.dumps({"unverified": unverified}), "whatever it says")
    report = host_of(agent(**note_reply(agent(), reply))).report
    assert report is not None
    assert (report.message.startswith(said), bool(report.message)) == (True, bool(said))


@pytest.mark.parametrize(
    ("output", "lasts"),
    [
        ({"falls_back": True, "lasts": "x"}, ""),
        ({"falls_back": False, "lasts": "GRUB cannot write"}, "GRUB cannot write"),
        ({"falls_back": False}, "its agent did not say why"),
        ({}, ""),
    ],
)
def test_what_later_boots_start_is_kept_of_the_agents_answer(output: dict[str, Any], lasts: str) -> None:
    reply = Reply(DOWNLOAD, step(State.RECLAIMING), 0, json.dumps(output))
    report = host_of(agent(**note_reply(agent(), reply))).report
    assert report is not None
    assert report.lasts == lasts


def test_an_answer_becomes_a_report_once() -> None:
    reply = Reply(DOWNLOAD, step(State.RECLAIMING), 1, '{"reason": "NoSpace"}', "no\nspace\x1b[31m")
    changes = note_reply(agent(), reply)
    after = agent(**changes)
    assert host_of(after).report == Report(step(State.RECLAIMING), 1, StepFailure.NO_SPACE, "no space [31m")
    assert note_reply(after, reply) == {}


@pytest.mark.parametrize(
    ("state", "reply"),
    [
        (State.RECLAIMING, Reply(DOWNLOAD, "another", 0)),
        (State.RECLAIMING, Reply(REBOOT, step(State.RECLAIMING), 1)),
        (State.RECLAIMING, Reply("x", step(State.RECLAIMING), 0)),
        (State.REBOOTING, Reply(DOWNLOAD, step(State.RECLAIMING), 0)),
        (State.REBOOTING, Reply(REBOOT, "another", 0)),
        (State.PENDING, Reply(DOWNLOAD, step(State.PENDING), 0)),
        (State.INSTALLED, Reply(DOWNLOAD, step(State.INSTALLED), 0)),
    ],
)
def test_answers_that_belong_nowhere_change_nothing(state: str, reply: Reply) -> None:
    assert note_reply(agent(state), reply) == {}


def test_progress_is_noted_beside_the_report() -> None:
    reply = Reply("progress", step(State.RECLAIMING), 0, '{"stage": "initrd", "percent": 340}')
    assert note_reply(agent(), reply) == {PROGRESS: "initrd 100%"}


def test_a_registration_counts_for_its_stage_only() -> None:
    rebooting = agent(State.REBOOTING)
    assert note_registration(rebooting) == {REGISTRATION: stage_key(State.REBOOTING, "2026-01-01T00:00:00Z")}


@given(st.text(max_size=40), st.integers(), st.text(max_size=2000), st.text(max_size=3000), st.sampled_from([*State]))
def test_no_answer_writes_anything_but_its_note(
    kind: str, exit_code: int, output: str, error: str, state: State
) -> None:
    for step_type in (kind, DOWNLOAD, REBOOT, "progress"):
        changes = note_reply(agent(state), Reply(step_type, step(state), exit_code, output, error))
        assert set(changes) <= {REPORT, PROGRESS}
        assert all(len(value) < 8 * LIMIT for value in changes.values())
        host_of(agent(state, **changes))


@pytest.mark.parametrize(
    "word", ["Registered", "Deciding", "Cancelled", "Rebound", "1st", "\u00e9t\u00e9", "a b", "x" * 61]
)
def test_an_agent_does_not_say_what_we_decide_by(word: str) -> None:
    """A host that says it is `Registered` would pass for one in discovery, and be left alone in its old cluster."""
    reply = Reply(DOWNLOAD, step(State.RECLAIMING), 1, json.dumps({"reason": word}), "no")
    report = host_of(agent(**note_reply(agent(), reply))).report
    assert report is not None
    assert (report.exit_code, report.reason) == (1, None)


def test_every_reason_of_the_agent_is_taken_as_it_is() -> None:
    assert {one.value for one in Reason} == {one.value for one in StepFailure}
    for reason in Reason:
        reply = Reply(DOWNLOAD, step(State.RECLAIMING), 1, json.dumps({"reason": reason.value}), "no")
        report = host_of(agent(**note_reply(agent(), reply))).report
        assert report is not None
        assert report.reason == reason.value


@given(st.one_of(st.binary(max_size=400), st.integers(0, 60_000).map(lambda deep: b'{"x":' + b"[" * deep)))
def test_no_body_is_more_than_refused(body: bytes) -> None:
    assert isinstance(decode_body(Reply, body), Malformed | Reply)


def test_what_comes_over_the_network_is_one_bounded_line() -> None:
    assert clean_text("a\nb\x00c\u2028d\u202ee") == "a b c d e"
    assert len(clean_text("x" * 10_000)) == LIMIT
    assert quote_text('a" b') == '"a\' b"'
    said = clean_text("https://me:secret@images/kernel?api_key=secret answered 404; see http://x/y#secret for more")
    assert said == "https://images/kernel answered 404; see http://x/y for more"
    said = clean_text("https://images/kernel?api_key=secret answered 404; see http://x/y#secret for more")
    assert said == "https://images/kernel answered 404; see http://x/y for more"


def test_a_host_that_asks_too_often_waits_and_others_do_not() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert all(rates.take("a") for _ in range(int(BURST)))
    assert not rates.take("a")
    assert rates.take("b")
    now[0] += 1
    assert rates.take("a")


def test_hosts_that_ask_at_once_are_told_what_one_look_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "ie-1"
    place.mkdir()
    (place / "kernel").write_bytes(b"kernel")
    looks: list[str] = []

    class Counting(ArtifactFiles):
        def _served(self, infra_env: str) -> dict[str, str]:
            looks.append(infra_env)
            return super()._served(infra_env)

    async def run() -> None:
        files = Counting(tmp_path, "http://hub/{infra_env}")
        monkeypatch.setattr(artifact_files, "FRESH", 600.0)
        every = await asyncio.gather(*(files.with_hashes("ie-1") for _ in range(100)))
        assert all(one == every[0] for one in every)
        assert 1 <= len(looks) <= artifact_files.LOOKERS
        (place / "initrd").write_bytes(b"initrd")
        assert await files.with_hashes("ie-1") == every[0]
        monkeypatch.setattr(artifact_files, "FRESH", 0.0)
        assert "initrd_sha256" in await files.with_hashes("ie-1")

    asyncio.run(run())


def test_every_artifact_of_ours_has_a_hash_and_the_owners_word_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_files, "FRESH", 0.0)
    place = tmp_path / "ie-1"
    place.mkdir()
    for name in ("kernel", "initrd", "rootfs"):
        (place / name).write_bytes(name.encode())

    def sha256(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    async def run() -> None:
        files = hub_with(tmp_path).files
        found = await files.with_hashes("ie-1")
        addresses = await files.served("ie-1")
        assert found == {**addresses, "kernel_sha256": sha256(b"kernel"), "initrd_sha256": sha256(b"initrd")}
        told = make_instructions(agent(), environment(), BOOT, found)
        arguments = json.loads(told["instructions"][0]["args"][0])
        assert (arguments["kernel_sha256"], arguments["initrd_url"]) == (sha256(b"kernel"), addresses["initrd"])
        (place / "kernel").write_bytes(b"another")
        (place / "initrd.sha256").write_text("its-owners-word  initrd\n")
        found = await files.with_hashes("ie-1")
        assert (found["kernel_sha256"], found["initrd_sha256"]) == (sha256(b"another"), "its-owners-word")
        (place / "initrd.sha256").write_bytes(b"\xff\xfe")
        with pytest.raises(Unreadable):
            await files.with_hashes("ie-1")
        assert await files.with_hashes("ie-2") == {}

    asyncio.run(run())


def test_a_body_is_never_unpacked_and_never_deep() -> None:
    answer = b'{"step_type": "progress", "step_id": "x"}'
    deep = b'{"step_type": "progress", "step_id": "x", "more": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"

    async def run() -> None:
        async with (
            listening(hub_with(None)) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        ):
            for body, headers in ((gzip.compress(answer), {"Content-Encoding": "gzip"}), (deep, {})):
                told = {"X-Secret-Key": HOST_TOKEN, **headers}
                async with session.post(INSTRUCTIONS, data=body, headers=told) as found:
                    assert found.status == 400, await found.text()

    asyncio.run(run())


def test_a_directory_of_artifacts_that_hangs_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_files, "LOOK_SECONDS", 0.05)
    answers = threading.Event()
    (tmp_path / "ie-1").mkdir()
    (tmp_path / "ie-1" / "kernel").write_bytes(b"k")

    class Hanging(ArtifactFiles):
        def _place(self, infra_env: str, name: str) -> Path | None:
            answers.wait(30)
            return super()._place(infra_env, name)

    async def run() -> None:
        hub = hub_with(tmp_path)
        hub.files = Hanging(tmp_path, "")
        async with TestClient(TestServer(hub.application())) as client:
            path = f"{hub_module.BASE.format(infra_env='ie-1')}/boot-artifacts/kernel"
            for _ in range(artifact_files.LOOKERS + 1):
                assert (await client.get(path)).status == 503
            monkeypatch.setattr(artifact_files, "LOOK_SECONDS", 30.0)
            async with asyncio.timeout(5):
                with pytest.raises(TimeoutError):
                    await hub.files.served("ie-1")  # at once: everybody who looks hangs
                assert (await asyncio.to_thread(lambda: 1)) == 1, "nobody else's threads do"
                answers.set()
                while hub.files._lookers.locked():
                    await asyncio.sleep(0.01)
                assert "kernel" in await hub.files.served("ie-1")

    try:
        asyncio.run(run())
    finally:
        answers.set()


async def no_artifacts(_: str) -> dict[str, str]:
    return {}


def observer_of(
    infra_envs: Watch[InfraEnv] | None = None, served: Callable[[str], Awaitable[dict[str, str]]] = no_artifacts
) -> Observer:
    """It knows no Agent and no old cluster."""
    nobody = cast(Any, None)
    agents: Watch[Agent] = Watch(nobody, AGENT, Agent, metrics=Metrics())
    return Observer(agents, infra_envs or nobody, nobody, served, lambda: NOW)


def test_artifacts_of_a_directory_that_hangs_are_not_known() -> None:
    async def hangs(_: str) -> dict[str, str]:
        raise TimeoutError

    infra_envs: Watch[InfraEnv] = Watch(cast(Any, None), INFRA_ENV, InfraEnv, metrics=Metrics())
    meta = {"name": "env", "namespace": "ns", "uid": "ie-1", "resourceVersion": "1"}
    infra_envs.store.put(msgspec.convert({"metadata": meta}, InfraEnv))
    infra_envs.store.synced = True
    body = {"metadata": {"name": "host-1", "namespace": "ns", "labels": {INFRA_ENV_LABEL: "env"}}}
    found = asyncio.run(observer_of(infra_envs, hangs).look_at_artifacts(msgspec.convert(body, Agent)))
    assert found == Unknown("the directory of artifacts (HUB_ARTIFACTS) does not answer")


@pytest.mark.parametrize(
    ("began", "deleted", "patient"),
    [(60, None, True), (3600, None, False), (3600, 60, True), (3600, 3600, False)],
)
@pytest.mark.parametrize("heard", [True, False])
def test_a_killed_agent_is_waited_for_from_the_stage_or_from_the_deletion_on(
    began: float, deleted: float | None, patient: bool, heard: bool
) -> None:
    class SpokeExecutor:
        async def withdraw(self, _: str, *, gone: bool, patient: bool, heard: bool) -> bool:
            waits.append((patient, heard))
            return False

    waits: list[tuple[bool, bool]] = []
    body = msgspec.to_builtins(
        agent(State.RECLAIMING if deleted else State.PENDING, **({PROGRESS: "x"} if heard else {}))
    )
    body["status"]["progress"]["stageStartTime"] = iso(NOW - began)
    body["metadata"]["deletionTimestamp"] = iso(NOW - deleted) if deleted else ""
    found = msgspec.convert(body, Agent)
    nobody = cast(Any, None)
    executor = ActionExecutor(nobody, observer_of(), nobody, nobody, "")
    asyncio.run(executor.perform(Withdraw(), found, host_of(found), nobody, cast(Any, SpokeExecutor())))
    assert waits == [(patient, heard)]
