"""Settings: one table, flag before environment before file before default, every mistake named at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.capabilities import IGNORE_INCUMBENT, RULES, SETTINGS, read_settings
from hostler.errors import Complaint, Exit
from hostler.maintenance import settings as m
from hostler.settings import foundation as f
from hostler.settings.model import HIDDEN, AnySetting, Setting
from hostler.settings.readers import ADDRESS, LABEL, LIMIT, SWITCH, URL, Address, names, rate, seconds, whole
from hostler.settings.resolve import resolve, survey
from hostler.ship.settings_page import markdown
from hostler.vsphere.settings import VCENTER_PASSWORD

# Two good texts for each kind of value, so that any two sources can be told apart.
BOOTSTRAP = ("system:bootstrappers", "system:serviceaccount:a:b")
GOOD: dict[str, tuple[str, str]] = {
    "true or false": ("true", "false"),
    "any text": ("one", "two"),
    "the path of a file": ("a.yaml", "b.yaml"),
}


def texts(setting: AnySetting) -> tuple[str, str]:
    """Two different texts that this setting can read."""
    if setting.reader.allowed in GOOD:
        return GOOD[setting.reader.allowed]
    if setting.reader.words:
        return setting.reader.words[0], setting.reader.words[-1]
    for pair in (
        ("60", "90"),
        ("100", "200"),
        ("25%", "3"),
        ("h:1", "h:2"),
        ("http://a", "http://b"),
        ("a=b", "c=d"),
        ("a", "b"),
        ("a/b", "c/d"),
        ("machines.cluster.x-k8s.io=a", "machines.cluster.x-k8s.io=b"),
        BOOTSTRAP,
        ("AB" * 32, "CD" * 32),
        ("Deployment/a/b", "DaemonSet/a/b"),
    ):
        try:
            if setting.reader.read(pair[0]) != setting.reader.read(pair[1]):
                return pair
        except ValueError:
            continue
    raise AssertionError(f"no sample for {setting.name}")


def said(complaint: Complaint) -> str:
    return complaint.sentence


def file_with(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return {"config": str(path)}


# -- the table itself


def test_every_setting_has_its_own_name_flag_and_key_and_is_described() -> None:
    for attribute in ("name", "flag", "key"):
        values = [getattr(setting, attribute) for setting in SETTINGS]
        assert len(values) == len(set(values))
    for setting in SETTINGS:
        assert setting.help.endswith("."), setting.name
        assert not setting.default or setting.reader.read(setting.reader.show(setting.default)) == setting.default


def test_the_seed_s_variables_have_their_exact_names_and_defaults() -> None:
    wanted = {
        "VCENTER_HOST": "", "VCENTER_USER": "", "VCENTER_PASSWORD": "", "VCENTER_CA_BUNDLE": "",
        "VCENTER_TLS_VERIFY": False, "GPU_NODE_LABEL": "intel.feature.node.kubernetes.io/gpu=true",
        "POLL_INTERVAL_SECONDS": 30, "DRAIN_TIMEOUT_SECONDS": 600, "GUEST_SHUTDOWN_TIMEOUT_SECONDS": 120,
        "POWER_ON_TIMEOUT_SECONDS": 300, "MAX_CONCURRENT_DRAINS": 1, "DRY_RUN": False,
    }  # fmt: skip
    found = {setting.name: setting.default for setting in SETTINGS}
    assert {name: found[name] for name in wanted} == wanted


def test_flag_and_key_leave_the_prefix_out() -> None:
    assert (f.LOG_FORMAT.name, f.LOG_FORMAT.flag, f.LOG_FORMAT.key) == (
        "HOSTLER_LOG_FORMAT", "--log-format", "log_format",
    )  # fmt: skip
    assert (f.MAX_UNAVAILABLE.flag, f.MAX_UNAVAILABLE.key) == ("--max-unavailable", "max_unavailable")


# -- precedence

SOURCES = ("flag", "environment", "file")


@given(data=st.data())
def test_the_first_source_that_says_something_wins(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    setting = data.draw(st.sampled_from([one for one in SETTINGS if one.in_file and one.has_flag]))
    saying = data.draw(st.sets(st.sampled_from(SOURCES)))
    right, wrong = data.draw(st.permutations(texts(setting)))
    winner = next((source for source in SOURCES if source in saying), "default")
    text = {source: right if source == winner else wrong for source in saying}
    flags = {setting.key: text["flag"]} if "flag" in saying else {}
    env = {setting.name: text["environment"]} if "environment" in saying else {}
    if "file" in saying:
        flags |= file_with(tmp_path_factory.mktemp("settings"), f'{setting.key}: "{text["file"]}"\n')
    settings, problems = survey(flags, env, table=SETTINGS, rules=RULES)
    assert settings.source(setting).split(" ")[0] == winner
    expected = setting.default if winner == "default" else setting.reader.read(right)
    assert settings[setting] == expected
    assert settings.given(setting) == (winner != "default")
    assert not [problem for problem in problems if "must be" in problem and setting.reader.allowed in problem]


def test_sources_are_named_so_that_they_can_be_found(tmp_path: Path) -> None:
    flags = file_with(tmp_path, "# first\n\nmax_unavailable: 3\nlog_level: debug\n") | {"log_level": "error"}
    settings = read_settings(flags, {"DRY_RUN": "true"})
    assert settings.source(f.MAX_UNAVAILABLE) == f"file {flags['config']} line 3"
    assert settings.source(f.LOG_LEVEL) == "flag --log-level"
    assert settings.source(f.DRY_RUN) == "environment DRY_RUN"
    assert settings.source(f.RESYNC_SECONDS) == "default"
    assert settings[f.DRY_RUN] is True


def test_the_file_can_be_named_in_the_environment_and_the_flag_wins(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("max_unavailable: 1\n")
    (tmp_path / "flag.yaml").write_text("max_unavailable: 2\n")
    env = {"HOSTLER_CONFIG": str(tmp_path / "env.yaml")}
    assert read_settings({}, env)[f.MAX_UNAVAILABLE] == "1"
    assert read_settings({"config": str(tmp_path / "flag.yaml")}, env)[f.MAX_UNAVAILABLE] == "2"


def test_an_empty_variable_is_unset() -> None:
    """That is how charts and shells spell "no value"."""
    assert read_settings({}, {"VCENTER_CA_BUNDLE": "", "MAX_CONCURRENT_DRAINS": ""})[m.MAX_CONCURRENT_DRAINS] == 1


def test_values_in_the_file_are_read_as_they_are_written(tmp_path: Path) -> None:
    """`no` is a word YAML would turn into false, 010 into 8, 1:30 into 90: here the setting's own reader decides."""
    flags = file_with(tmp_path, "max_unavailable: 010\ndry_run: yes\nignore_incumbent: [metal, ingress]\ncontext: no\n")
    settings = read_settings(flags, {})
    assert settings[f.MAX_UNAVAILABLE] == "010"
    assert settings[f.DRY_RUN] is True
    assert settings[IGNORE_INCUMBENT] == ("metal", "ingress")
    assert settings[f.CONTEXT] == "no"


# -- mistakes


def test_every_wrong_value_is_listed_with_setting_source_value_and_what_is_allowed(tmp_path: Path) -> None:
    flags = file_with(tmp_path, "http_address: nowhere\nmax_unavailabel: 3\n") | {"only": "meta"}
    env = {"DRY_RUN": "maybe", "HOSTLER_LOG_FORMT": "json"}
    with pytest.raises(Complaint) as caught:
        read_settings(flags, env)
    text = said(caught.value)
    assert caught.value.code is Exit.SETTING
    assert "5 settings are wrong" in text
    assert 'DRY_RUN (environment DRY_RUN) is "maybe", but must be true or false.' in text
    assert 'HOSTLER_ONLY (flag --only) is "meta", but must be a comma-separated list of maintenance' in text
    assert f'HOSTLER_HTTP_ADDRESS (file {flags["config"]} line 1) is "nowhere", but must be HOST:PORT' in text
    assert f'"max_unavailabel" (file {flags["config"]} line 2) is not a setting. Did you mean max_unavailable?' in text
    assert "environment HOSTLER_LOG_FORMT is not a setting. Did you mean HOSTLER_LOG_FORMAT?" in text
    assert "Nothing was started" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MAX_UNAVAILABLE: 3", '"MAX_UNAVAILABLE" (file {} line 1) is not a setting. Did you mean max_unavailable?'),
        ("HOSTLER_LEASE_NAME: a", '"HOSTLER_LEASE_NAME" (file {} line 1) is not a setting. Did you mean lease_name?'),
        ("? {a: b}\n: c", '"?" (file {} line 1) is not a setting.'),
        ("[" * 1200, "The settings file {} is nested too deeply."),
    ],
)
def test_a_file_of_other_words_than_keys(tmp_path: Path, text: str, words: str) -> None:
    flags = file_with(tmp_path, text)
    with pytest.raises(Complaint) as caught:
        read_settings(flags, {})
    assert caught.value.sentence == words.format(flags["config"])


def test_a_prefix_too_many_is_recognised() -> None:
    with pytest.raises(Complaint, match=r"HOSTLER_DRY_RUN is not a setting\. Did you mean DRY_RUN\?"):
        read_settings({}, {"HOSTLER_DRY_RUN": "true"})


@pytest.mark.parametrize(
    "name",
    [
        "HOSTLER_SERVICE_HOST", "HOSTLER_SERVICE_PORT", "HOSTLER_SERVICE_PORT_HTTP", "HOSTLER_PORT",
        "HOSTLER_PORT_8080_TCP", "HOSTLER_PORT_8080_TCP_ADDR", "HOSTLER_METRICS_SERVICE_HOST",
        "HOSTLER_HTTP_PORT", "HOSTLER_STEP_API_PORT_443_TCP_PROTO",
    ],
)  # fmt: skip
def test_what_kubernetes_puts_into_a_pod_for_our_services_is_no_mistake(name: str) -> None:
    """A Service named hostler in our namespace must not keep the operator from starting."""
    assert name not in {setting.name for setting in SETTINGS}
    read_settings({}, {name: "tcp://10.0.0.1:80"})


def test_a_mistake_in_another_setting_does_not_keep_anybody_from_the_stop_button(tmp_path: Path) -> None:
    flags = file_with(tmp_path, "nonsense: 1\n")
    settings = resolve(flags, {"DRY_RUN": "maybe", "HOSTLER_X": "1"}, table=(f.KUBECONFIG, f.CONTEXT))
    assert settings[f.CONTEXT] == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("- 1\n- 2\n", "does not hold settings"),
        ("just a text", "does not hold settings"),
        ("dry_run: true\ndry_run: false\n", "is there twice"),
        ("dry_run:\n", "has no single value; it must be true or false"),
        ("dry_run: {a: b}\n", "has no single value"),
        ("config: other.yaml\n", '"config"'),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    flags = file_with(tmp_path, text)
    with pytest.raises(Complaint) as caught:
        read_settings(flags, {})
    assert words in said(caught.value)
    assert flags["config"] in said(caught.value)
    assert caught.value.code is Exit.SETTING


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(Complaint, match="cannot be read: No such file"):
        read_settings({"config": str(tmp_path / "none.yaml")}, {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Complaint, match="not UTF-8"):
        read_settings({"config": str(tmp_path / "binary")}, {})


def test_an_empty_file_is_fine(tmp_path: Path) -> None:
    assert read_settings(file_with(tmp_path, "# nothing yet\n"), {})[f.LOG_LEVEL] == "info"


# -- secrets


def test_a_secret_is_never_shown() -> None:
    env = {"VCENTER_HOST": "vc", "VCENTER_USER": "me", "VCENTER_PASSWORD": "hunter2"}
    settings = read_settings({}, env)
    assert settings[VCENTER_PASSWORD] == "hunter2"
    assert "hunter2" not in repr(settings)
    assert [one.shown for one in settings if one.setting is VCENTER_PASSWORD] == [HIDDEN]
    assert not VCENTER_PASSWORD.has_flag


def test_a_secret_is_not_shown_in_a_complaint_about_it_either() -> None:
    strict = Setting("VCENTER_PASSWORD", whole(0), 0, "A password of digits.", "test", secret=True)
    _, problems = survey({}, {"VCENTER_PASSWORD": "hunter2"}, table=(strict,))
    assert problems == [
        "VCENTER_PASSWORD (environment VCENTER_PASSWORD) is ***, but must be a whole number of at least 0."
    ]


# -- settings that must fit together


def test_two_leaders_at_once_are_refused() -> None:
    with pytest.raises(Complaint, match=r"HOSTLER_LEASE_RENEW_SECONDS \(20, flag --lease-renew-seconds\) must be"):
        read_settings({"lease_renew_seconds": "20"}, {})
    with pytest.raises(Complaint, match="one slow answer costs the lease"):
        read_settings({"lease_retry_seconds": "9"}, {})


def test_half_a_vcenter_is_refused() -> None:
    with pytest.raises(Complaint, match="VCENTER_USER and VCENTER_PASSWORD"):
        read_settings({}, {"VCENTER_HOST": "vc"})


def test_a_capability_that_cannot_run_is_refused_when_named() -> None:
    with pytest.raises(Complaint, match=r"HOSTLER_ONLY \(flag --only\) names maintenance"):
        read_settings({"only": "maintenance"}, {})


# -- readers


@given(st.text())
def test_no_text_breaks_a_reader(text: str) -> None:
    """A reader gives a value it can read again from what it shows, or refuses; nothing else."""
    for reader in {setting.reader for setting in SETTINGS}:
        try:
            value = reader.read(text)
        except ValueError:
            continue
        shown = reader.show(value)
        assert not shown or reader is LIMIT or reader.read(shown) == value


@pytest.mark.parametrize("text", ["inf", "nan", "1e3", "-1", "", " ", "1_000", "٣", "0x10", "1,5"])
def test_numbers_are_plain(text: str) -> None:
    for reader in (seconds(0), rate(0, 10)):
        with pytest.raises(ValueError, match=r"^$"):
            reader.read(text)


def test_addresses() -> None:
    assert ADDRESS.read(":8080") == Address("", 8080)
    assert ADDRESS.read("[::1]:0") == Address("::1", 0)
    assert str(Address("::1", 80)) == "[::1]:80"
    for wrong in ("8080", "::1:8080", "h:65536", "h:", "h:-1", "a b:1", "http://h:1"):
        with pytest.raises(ValueError, match=r"^$"):
            ADDRESS.read(wrong)


def test_small_readers() -> None:
    assert names(("a", "b", "c")).read("c, a,a") == ("a", "c")
    assert URL.read("https://h:1/") == "https://h:1"
    assert LABEL.read("a.b/c=") == "a.b/c="
    assert LIMIT.read("0%") == "0%"
    assert SWITCH.read(" Yes ") is True
    for reader, wrong in ((URL, "h:1"), (LABEL, "a b=c"), (LIMIT, "101%"), (LIMIT, "-1"), (SWITCH, "si")):
        with pytest.raises(ValueError, match=r"^$"):
            reader.read(wrong)


# -- the documentation


def test_the_documentation_is_what_the_table_says() -> None:
    written = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    assert written == markdown(), "run: make chart"
