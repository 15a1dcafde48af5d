"""Label selectors as Kubernetes has them."""

import pytest

from hostler.drain.selector import matches, parse_selector
from hostler.errors import Complaint
from hostler.kube.records import Selector

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
        ("!none,app in (web)", True), ("empty=", True), ("app.kubernetes.io/name=x", False),
    ],
)  # fmt: skip
def test_a_selector_as_text(text: str, expected: bool) -> None:
    assert matches(parse_selector(text), LABELS) is expected


@pytest.mark.parametrize("text", ["=web", "app in web", "app=(web)", "app=a=b", "a b", "!", ",", "app in (a"])
def test_a_wrong_selector_is_a_sentence(text: str) -> None:
    with pytest.raises(Complaint, match=r"pod selector .* cannot be read"):
        parse_selector(text)
