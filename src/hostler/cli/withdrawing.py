"""What the `withdraw` commands have in common: nothing is taken back that a running operator would put there again."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.cli.printing import Output, print_answer, print_note
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import OPERATOR
from hostler.settings.model import Settings


def refuse_while_on(settings: Settings, capability: str, *, yes: bool) -> None:
    """Refuse while an operator has this capability on. A --yes does not stand for what is not known."""
    from hostler.cli.cluster import ask_operator
    from hostler.explain.wire import StatusAnswer

    try:
        answer = ask_operator(settings, "/v1/status", StatusAnswer)
    except Complaint as none:
        typed = settings.source(OPERATOR) == f"flag {OPERATOR.flag}"  # a variable may be of another day
        if yes and not typed:
            raise Complaint(
                f"Cannot tell whether an operator still has {capability} on: {none.sentence}",
                hint="Say where it is or was with --operator URL, or leave --yes out and answer for it.",
                code=Exit.REFUSED,
            ) from None
        print_note(f"Cannot tell whether an operator still has {capability} on: {none.sentence}")
        return
    if any(one.name == capability and one.enabled for one in answer.status.capabilities):
        raise Complaint(
            f"{answer.identity} has {capability} on and would put it all back.",
            hint=f"Switch it off first: leave {capability} out of --only, or capabilities.{capability}=false in the "
            "chart.",
            code=Exit.REFUSED,
        )


def print_done(done: Sequence[str], output: Output, *, nothing: str) -> None:
    """What was taken back; `nothing`: printed where there was nothing to take back."""
    from hostler.cli.answers import Withdrawn

    print_answer(Withdrawn(tuple(done)), output, lambda: print_note("Done." if done else nothing), names=done)
