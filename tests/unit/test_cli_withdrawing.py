"""What `withdraw --yes` does where no operator answers."""

from __future__ import annotations

import pytest

from hostler.cli.withdrawing import refuse_while_on
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import CONTEXT, KUBECONFIG, OPERATOR
from hostler.settings.resolve import resolve

NOBODY = "http://127.0.0.1:1"
READ = (KUBECONFIG, CONTEXT, OPERATOR)


def test_an_operator_that_does_not_answer_counts_as_gone_only_if_it_was_named_by_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A variable may be left over from another cluster: --yes does not stand for what it names."""
    left_over = resolve({}, {OPERATOR.name: NOBODY}, table=READ)
    with pytest.raises(Complaint, match="Cannot tell whether an operator still has metal on") as refused:
        refuse_while_on(left_over, "metal", yes=True)
    assert (refused.value.code, "--operator URL" in (refused.value.hint or "")) == (Exit.REFUSED, True)
    refuse_while_on(left_over, "metal", yes=False)  # then a person is asked
    refuse_while_on(resolve({OPERATOR.key: NOBODY}, {}, table=READ), "metal", yes=True)
    assert capsys.readouterr().err.count("Cannot tell") == 2
