"""What leaves the house in a bundle: no secret, whatever it is called and wherever it stands; the rest is readable."""

from __future__ import annotations

import base64
import html
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.cli.redact import HIDDEN, redact, redact_text

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"token {JWT} sent", f"token {HIDDEN} sent"),
        (f"key:\n{PEM}\nend", f"key:\n{HIDDEN}\nend"),
        ("-----BEGIN CERTIFICATE-----\nMII", HIDDEN),
        ("Authorization: Bearer abcdef123456", f"Authorization: {HIDDEN}"),
        ("https://ada:hunter22@vc.example/sdk", f"https://{HIDDEN}@vc.example/sdk"),
        ("join with abcdef.0123456789abcdef now", f"join with {HIDDEN} now"),
        ("password=hunter22 user=ada", f"password={HIDDEN} user=ada"),
        ("password: correct horse battery\nuser: ada", f"password: {HIDDEN}\nuser: ada"),
        ("he wrote password: hunter22, then left", f"he wrote password: {HIDDEN}, then left"),
        ('{"password": "a \\"b\\" c", "user": "ada"}', f'{{"password": "{HIDDEN}", "user": "ada"}}'),
        (r'said="{\"token\":\"a b\",\"n\":1}"', rf'said="{{\"token\":\"{HIDDEN}\",\"n\":1}}"'),
        ('password="it has no end', f'password="{HIDDEN}"'),
        ("      client-key-data: LS0tLS1CRUdJTiBSU0E=", f"      client-key-data: {HIDDEN}"),
        (f"ca {base64.b64encode(PEM.encode()).decode()} read", f"ca {HIDDEN} read"),
        ("ipmitool --bmc-password hunter22 --user ada", f"ipmitool --bmc-password {HIDDEN} --user ada"),
        ("- name: X\n  value: hunter22\n- name: Y", f"- name: X\n  value: {HIDDEN}\n- name: Y"),
        ('[{"name":"X","value":"a b"}]', f'[{{"name":"X","value":"{HIDDEN}"}}]'),
        ("password: |-\n  hunter22\n\n  and more\nuser: ada", f"password: {HIDDEN}\nuser: ada"),
        ("- token: >\n    hunter22\n- user: ada", f"- token: {HIDDEN}\n- user: ada"),
        (r'{"x":"password: |\n  hunter22\nuser: ada"}', rf'{{"x":"password: {HIDDEN}\nuser: ada"}}'),
        ('{"passwords": ["hunter22", "b"], "n": [1]}', f'{{"passwords": {HIDDEN}, "n": [1]}}'),
        (r'x="{\"tokens\":[\"hunter22\"]}"', rf'x="{{\"tokens\":{HIDDEN}}}"'),
        ("<vim:password>hunter22</vim:password>", f"<vim:password>{HIDDEN}</vim:password>"),
        ("pwd=hunter22 passphrase: hunter22, pass=x", f"pwd={HIDDEN} passphrase: {HIDDEN}, pass={HIDDEN}"),
        ('{"auths":{"r":{"auth":"YWRhOmg="}}}', f'{{"auths":{{"r":{{"auth":"{HIDDEN}"}}}}}}'),
        ("https://h/x?sig=abc vmware-api-session-id: ab", f"https://h/x?sig={HIDDEN} vmware-api-session-id: {HIDDEN}"),
        (
            "https://:hunter22@a/ https://t0k3n@b/ https://u:p@ss@c/",
            f"https://{HIDDEN}@a/ https://{HIDDEN}@b/ https://{HIDDEN}@c/",
        ),
        ("core:$6$salt$hunter22hunter22:1", f"core:{HIDDEN}:1"),
        ("password => hunter22", f"password => {HIDDEN}"),
        ("bypassed: 3 compass: n, a pass was made", "bypassed: 3 compass: n, a pass was made"),
        ("worker-3 was drained at 12:00 by ada", "worker-3 was drained at 12:00 by ada"),
        ("Check --kubeconfig and --context.", "Check --kubeconfig and --context."),
        ("VCENTER_PASSWORD_FILE=/etc/x secretName: hub", "VCENTER_PASSWORD_FILE=/etc/x secretName: hub"),
        ('secrets "hub-tls" is forbidden: User "x" cannot', 'secrets "hub-tls" is forbidden: User "x" cannot'),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, left: str) -> None:
    assert redact_text(text) == left


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ({"kind": "Secret", "data": {"a": "eA=="}}, {"kind": "Secret", "data": {"a": HIDDEN}}),
        ({"env": [{"name": "X", "value": "1"}]}, {"env": [{"name": "X", "value": HIDDEN}]}),
        ({"bmcPassword": "x", "user": "ada"}, {"bmcPassword": HIDDEN, "user": "ada"}),
        ({"secretName": "s", "secretRef": {"name": "s"}}, {"secretName": "s", "secretRef": {"name": "s"}}),
        ({"metadata": {"managedFields": [1]}}, {"metadata": {"managedFields": None}}),
        ({"passwords": ["x", 5], "token": 7}, {"passwords": [HIDDEN, HIDDEN], "token": HIDDEN}),
        ({"mountToken": False, "secrets": [{"name": "s"}]}, {"mountToken": False, "secrets": [{"name": "s"}]}),
        ({"a": [{"token": "t"}], "n": 3}, {"a": [{"token": HIDDEN}], "n": 3}),
        ({"args": ["--token", "t", "--token-file", "f"]}, {"args": ["--token", HIDDEN, "--token-file", "f"]}),
        ({"env": {"A": "1"}, "n": {"env": ["A=1"]}}, {"env": {"A": HIDDEN}, "n": {"env": [HIDDEN]}}),
        ({"env": "A=1", "more": {"env": None}}, {"env": HIDDEN, "more": {"env": None}}),
        (
            {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": HIDDEN}},
        ),
    ],
)
def test_objects(data: Any, left: Any) -> None:
    assert redact(data) == left


KUBECONFIG = {
    "users": [
        {
            "name": "ada",
            "user": {
                "exec": {"command": "login", "args": ["--token", "s3"], "env": [{"name": "X", "value": "s1"}]},
                "client-key-data": "s2",
            },
        }
    ]
}


def test_a_kubeconfig_may_stand_anywhere() -> None:
    left = json.dumps(redact(KUBECONFIG))
    assert not [one for one in ("s1", "s2", "s3") if one in left]
    assert "login" in left
    event = {"note": f"cannot read {json.dumps({'token': 's4 and more'})}", "annotations": {"a/kubeconfig": "s5"}}
    assert redact(event) == {
        "note": f'cannot read {{"token": "{HIDDEN}"}}',
        "annotations": {"a/kubeconfig": HIDDEN},
    }


@given(st.text(min_size=6, max_size=20))
def test_a_known_secret_is_found_as_others_write_it(secret: str) -> None:
    written = (
        secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quote(secret, safe=""), html.escape(secret),
        base64.b64encode(secret.encode()).decode(),
    )  # fmt: skip
    for form in written:
        assert HIDDEN in redact_text(f"x {form} y", [secret]), form


_TREES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(_TREES, st.text("abcXYZ123!", min_size=6, max_size=20), st.text(max_size=10), st.text(max_size=10))
def test_a_known_secret_never_gets_out(tree: Any, secret: str, before: str, after: str) -> None:
    said = json.dumps(redact({"x": tree, "y": [f"{before}{secret}{after}"], secret[:3]: secret}, [secret]))
    assert secret not in said
