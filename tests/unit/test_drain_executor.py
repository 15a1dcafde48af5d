"""What the API server's answers mean for a pod."""

from __future__ import annotations

import pytest

from hostler.drain.executor import answer_to
from hostler.drain.model import Answer, Evict, Outcome
from hostler.kube.errors import Unreachable, from_response

EVICT = Evict("web", "a", "uid", "nothing keeps it here")
UNDER_TWO = Evict("web", "a", "uid", "nothing keeps it here", ("web/x@1", "web/y@2"))
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
BUDGET = (
    b'{"code":429,"message":"Cannot evict","details":{"causes":'
    b'[{"reason":"DisruptionBudget","message":"web needs 3."}]}}'
)


@pytest.mark.parametrize(
    ("evict", "code", "body", "retry_after", "outcome"),
    [
        (EVICT, 404, b"{}", None, Outcome.GONE),
        (EVICT, 409, b'{"message":"Precondition failed: UID in precondition"}', None, Outcome.MOVED),
        (EVICT, 429, BUDGET, "10", Outcome.REFUSED),
        # The server's own load, or a webhook's no: not a budget's word.
        (EVICT, 429, b'{"message":"too many requests"}', "1", Outcome.FAILED),
        (EVICT, 500, f'{{"message":"{SEVERAL}"}}'.encode(), None, Outcome.SEVERAL_BUDGETS),
        (UNDER_TWO, 500, b'{"message":"in other words"}', None, Outcome.SEVERAL_BUDGETS),
        (EVICT, 500, b'{"message":"etcd is down"}', None, Outcome.FAILED),
        (EVICT, 403, b'{"message":"pods is forbidden: namespace is being terminated"}', None, Outcome.FAILED),
        (EVICT, 504, b"gateway", None, Outcome.FAILED),
    ],
)
def test_an_answer(evict: Evict, code: int, body: bytes, retry_after: str | None, outcome: Outcome) -> None:
    answer = answer_to(evict, from_response(code, body, retry_after))
    assert answer.outcome is outcome
    assert answer.retry_after == (float(retry_after) if retry_after else None)


def test_the_budgets_own_words_are_kept() -> None:
    assert answer_to(EVICT, from_response(429, BUDGET, None)).said == "web needs 3"


def test_no_answer_is_a_failure_to_be_tried_again() -> None:
    assert answer_to(EVICT, Unreachable("cut")) == Answer(Outcome.FAILED, "there was no answer")
