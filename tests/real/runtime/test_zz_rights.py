"""What every operator of this folder asked for, against the table of rights: see tests.real.test_zz_rights."""

from tests.real.test_zz_rights import (
    asked,
    test_every_write_of_every_operator_is_in_the_table,
    test_nothing_is_refused_to_an_operator_with_the_chart_s_rights,
)

__all__ = [
    "asked",
    "test_every_write_of_every_operator_is_in_the_table",
    "test_nothing_is_refused_to_an_operator_with_the_chart_s_rights",
]
