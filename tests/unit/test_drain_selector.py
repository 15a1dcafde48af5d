"""Label selectors as Kubernetes has them."""

import re

import pytest

from hostler.drain.selector import matches
from hostler.kube.records import Selector
from hostler.selectors import PATTERN, parse_selector

LABELS = {"app": "web", "tier": "front", "empty": ""}


def term(key: str, operator: str, *values: str) -> Selector:
    return Selector(match_expressions=(Selector.Expression(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (Selector(), True),
        (Selector(match_labels={"app": "web"}), True),
        (Selector(match_labels={"app": "web", "tier": "back"}), False),
        (Selector(match_labels={"none": ""}), False),
        (term("app", "In", "db", "web"), True),
        (term("app", "In"), False),
        (term("none", "In", ""), False),
        (term("app", "NotIn", "db"), True),
        (term("app", "NotIn", "web"), False),
        (term("none", "NotIn", "x"), True),
        (term("empty", "Exists"), True),
        (term("none", "Exists"), False),
        (term("none", "DoesNotExist"), True),
        (term("app", "DoesNotExist"), False),
        (term("app", "Gt", "1"), False),
        (Selector(match_labels={"app": "web"}, match_expressions=term("tier", "Exists").match_expressions), True),
    ],
)  # fmt: skip
def test_what_a_selector_matches(selector: Selector, expected: bool) -> None:
    assert matches(selector, LABELS) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True), ("app=web", True), ("app==web", True), (" app = web , tier=front ", True), ("app!=web", False),
        ("none!=x", True), ("app in (db, web)", True), ("app notin (db,web)", False), ("tier", True), ("!tier", False),
        ("!none,app in (web)", True), ("empty=", True), ("app.kubernetes.io/name=x", False), ("cores>8", True),
        ("cores<8", False), ("app>8", False), ("none<8", False), ("none notin (x)", True), ("empty in ()", True),
    ],
)  # fmt: skip
def test_a_selector_as_text(text: str, expected: bool) -> None:
    assert all(one.holds(LABELS | {"cores": "16"}) for one in parse_selector(text)) is expected
    assert not text or re.fullmatch(PATTERN, text)


@pytest.mark.parametrize(
    "text",
    [
        "=web", "app in web", "app=(web)", "app=a=b", "a b", "!", ",", "app in (a", "app=web,", "-app=x", "app=x-",
        "UPPER.io/x", "a/b/c", "cores>many", f"{'x' * 64}=1", f"app={'x' * 64}",
    ],
)  # fmt: skip
def test_a_wrong_selector_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|is no"):
        parse_selector(text)
    assert not re.fullmatch(PATTERN, text) or "/" in text, "the schema of the chart takes any prefix in small letters"
