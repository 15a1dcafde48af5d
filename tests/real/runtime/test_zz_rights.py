"""What every operator of this folder asked for, against the table of rights: see tests.real.test_zz_rights."""

from tests.real.test_zz_rights import (
    log,
    test_no_operator_runs_as_anybody_but_an_account_with_the_chart_s_rights,
    test_nothing_is_refused_to_an_operator_with_the_chart_s_rights,
)

__all__ = [
    "log",
    "test_no_operator_runs_as_anybody_but_an_account_with_the_chart_s_rights",
    "test_nothing_is_refused_to_an_operator_with_the_chart_s_rights",
]
