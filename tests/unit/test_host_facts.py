"""Facts: known with an age, or unknown with a reason."""

from hostler.host.facts import Known, Unknown, age, both, fresh, then, value_or


def test_a_fact_grows_old_and_then_is_unknown_with_a_reason() -> None:
    fact = Known("poweredOff", at=100.0)
    assert fresh(fact, now=130.0, max_age=30) is fact
    match fresh(fact, now=131.0, max_age=30):
        case Unknown(why):
            assert why == "last seen 31 s ago, older than the 30 s allowed"
        case Known():
            raise AssertionError("31 s is too old")


def test_a_clock_set_back_does_not_make_an_age_negative() -> None:
    assert age(Known(1, at=100.0), now=50.0) == 0


def test_unknown_stays_unknown_with_its_first_reason() -> None:
    gone = Unknown("vCenter is unreachable")
    assert fresh(gone, now=1.0, max_age=1) is gone
    assert then(gone, str) is gone
    assert both(Known(1, 1.0), gone) is gone
    assert both(gone, Unknown("other")) is gone
    assert value_or(gone, 7) == 7


def test_what_follows_from_facts_is_as_old_as_the_oldest() -> None:
    assert then(Known(2, 5.0), lambda n: n + 1) == Known(3, 5.0)
    assert both(Known(1, 5.0), Known("b", 3.0)) == Known((1, "b"), 3.0)
