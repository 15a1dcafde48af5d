"""Takes secrets out of what leaves the house. Pure. What may be one counts as one: a bundle is sent to strangers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "(removed)"
# A key that is named like a secret holds one, whatever its value looks like.
_NAMES = (
    r"(?:passw|passphrase|secret|token|credential|(?:private|api|access|client|account).?key|key.?data|session.?id|signature"
    r"|cookie|authorization|kubeconfig|(?<![a-z])(?:pass|pw|pwd|auth|sig)(?![a-z]))"
)
_NAMED = re.compile(_NAMES, re.I)
# Names that only speak of secrets: a reference, a count, a time.
_HARMLESS = re.compile(r"(?i)(name|refs?|seconds|file|count|type|kind)$")
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.S),
    re.compile(r"\bLS0tLS1CRUdJTi[\w+/]*=*"),  # such a block in base64, as in a kubeconfig
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"),  # a JWT
    re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"),
    re.compile(r"(?<=://)[^/\s\"'<>]+(?=@)"),  # user:password@ in a URL; either may be missing
    re.compile(r"\$(?:1|2[abxy]?|5|6|y|gy)\$[^\s\"',:]{8,}"),  # a password's hash, as in /etc/shadow
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a bootstrap token
    # Tokens that their issuers made recognisable: GitHub, GitLab, Slack, Stripe, npm, PyPI, SendGrid, Square; OpenAI;
    # Artifactory and AWS; Twilio, Telegram, Mailchimp and Discord.
    re.compile(
        r"\b(?:gh[opsur]_|github_pat_|gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|ffct|imt)-|xox[a-z]-|[rs]k_live_|npm_|pypi-AgE"
        r"|SG\.|sq0[a-z]{3}-)[\w.-]{16,}"
    ),
    re.compile(r"\bsk-(?:[a-z]+-)?[A-Za-z\d]{20,}"),
    re.compile(r"\b(?:AKC[A-Za-z\d]{10,}|AP[\dA-F][A-Za-z\d]{8,}|A(?:KIA|SIA|BIA|CCA)[\dA-Z]{16})\b"),
    re.compile(
        r"\b(?:(?:AC|SK)[\da-z]{32}|\d{8,10}:[\w-]{35}|[\da-z]{32}-us\d{1,2}"
        r"|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38})(?![\w-])"
    ),
)
# What a text itself calls a secret, with its value: lines of YAML below its name, or one, to its end; an element of
# XML; `password=x`, `"token": "x"`, also in a text that is quoted once more; `--bmc-password x`; and any variable of an
# environment.
_VALUE = (
    r"""(?:[|>][-+\d]*(?:\\+n[ \t]+[^\\"]*)+|\[[^\]\n]*\]?|"(?:\\.|[^"\\])*"?|'[^']*'?|\\+".*?(?:\\+"|$)"""
    r"""|[^\s"',;}\])]+)"""
)
_CALLED = (
    re.compile(
        rf"^(?P<name>(?P<far>[ \t]*)(?:- )?[\w.-]{{0,80}}?{_NAMES}[\w-]*)(?P<between>[ \t]*:[ \t]+)"
        r"(?P<value>[|>][-+\d]*[ \t]*(?:\n(?:(?P=far)[ \t]+.*|(?=\n)))+)",
        re.I | re.M,
    ),
    re.compile(rf"(?P<name><[\w:.-]{{0,80}}?{_NAMES}[\w:.-]*)(?P<between>[^<>]*>)(?P<value>[^<]+)", re.I),
    re.compile(
        rf"^(?P<name>[ \t]*(?:- )?[\w.-]{{0,80}}?{_NAMES}[\w-]*)(?P<between>[ \t]*:[ \t]+)(?P<value>.+)$", re.I | re.M
    ),
    re.compile(rf"""(?P<name>{_NAMES}[\w-]*)(?P<between>\\*["']?\s*[=:]>?\s*)(?P<value>{_VALUE})""", re.I),
    re.compile(
        r"""(?P<name>\bname\\*["']?\s*:\s*\\*["']?[\w.-]+\\*["']?(?:,\s*|\s+)\\*["']?value)(?P<between>\\*["']?\s*:\s*)"""
        rf"(?P<value>{_VALUE})"
    ),
    re.compile(
        rf"(?P<name>(?<![\w-])--?(?!kubeconfig)(?:\w[\w-]{{0,80}}?)?{_NAMES}[\w-]*)(?P<between>\s+)(?P<value>[^\s-]\S*)",
        re.I,
    ),
)
_FLAG = re.compile(rf"--?[\w-]*{_NAMES}[\w-]*", re.I)
# Shorter ones are words too; hiding every "admin" would hide the sentence.
_SHORTEST = 6


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Known secrets wherever they stand, and whatever has the shape of one or is called one."""
    forms = {form for one in secrets if len(one) >= _SHORTEST for form in _forms(one)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    for called in _CALLED:
        text = called.sub(_uncalled, text)
    return text


def _forms(secret: str) -> Iterator[str]:
    """As it stands in JSON, in a URL, in XML, and in a Secret."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield escape(secret)
    yield base64.b64encode(secret.encode()).decode().rstrip("=")


def _uncalled(found: re.Match[str]) -> str:
    """The same without the value, whose quotes stay."""
    name, between, value = found["name"], found["between"], found["value"]
    if _HARMLESS.search(name) or HIDDEN.startswith(value):
        return found[0]
    first = re.match(r"""\\*["']?""", value)
    mark = first[0] if first else ""
    return f"{name}{between}{mark}{HIDDEN}{mark}"


def redact(data: Any, secrets: Collection[str] = ()) -> Any:
    """The same for objects as they come from the API server; environment values go whatever their name is."""
    match data:
        case str():
            return redact_text(data, secrets)
        case Mapping():
            kind = str(data.get("kind", ""))
            return {
                redact_text(str(key), secrets): _value(kind, str(key), value, secrets) for key, value in data.items()
            }
        case list() | tuple():
            return list(_entries(data, secrets))
        case _:
            return data


def _entries(data: Sequence[Any], secrets: Collection[str]) -> Iterator[Any]:
    """Of a command line, what follows `--password` too."""
    before: Any = ""
    for one in data:
        flag = isinstance(one, str) and isinstance(before, str) and _FLAG.fullmatch(before)
        yield HIDDEN if flag and not _HARMLESS.search(before) else redact(one, secrets)
        before = one


def _value(kind: str, key: str, value: Any, secrets: Collection[str]) -> Any:
    if key == "managedFields":
        return None  # who wrote what is noise here, and it repeats every key
    if kind == "Secret" and key in ("data", "stringData"):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
    if key == "env":
        return _environment(value, secrets)
    if key == "last-applied-configuration" or key.endswith("/last-applied-configuration"):
        return HIDDEN  # a whole object as text, with its environment
    if _NAMED.search(key) and not _HARMLESS.search(key):
        return _hidden(value, secrets)
    return redact(value, secrets)


def _hidden(value: Any, secrets: Collection[str]) -> Any:
    """Under the name of a secret: texts and numbers go, one by one or listed. Whether there is any stays to be seen."""
    match value:
        case bool() | None | "":
            return value
        case str() | int() | float():
            return HIDDEN
        case list() | tuple():
            return [redact(one, secrets) if isinstance(one, Mapping) else _hidden(one, secrets) for one in value]
    return redact(value, secrets)


def _environment(value: Any, secrets: Collection[str]) -> Any:
    """Of a container or of a kubeconfig's plugin: names stay, values go. Whoever has another form for it, all of it."""
    match value:
        case None:
            return None
        case list() | tuple():
            return [
                {**redact(one, secrets), **({"value": HIDDEN} if "value" in one else {})}
                if isinstance(one, Mapping)
                else HIDDEN
                for one in value
            ]
        case Mapping():
            return dict.fromkeys(value, HIDDEN)
    return HIDDEN
