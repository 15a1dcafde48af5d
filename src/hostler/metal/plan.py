"""What a simulated course of a machine looks like to people: its steps, and how it ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hostler.explain.registry import Action, Explanation
from hostler.metal import names
from hostler.metal.simulate import Event, Forecast, Happens


def explain_forecast(forecast: Forecast, held_back: str) -> Explanation:
    """`held_back`: why nothing is written now; empty: it is."""
    actions = tuple(_actions(forecast.events, held_back))
    outcome = forecast.first.why
    if forecast.gone:
        outcome += " In the end the machine is gone."
    elif forecast.last.why != forecast.first.why:
        outcome += f" In the end: {forecast.last.why}"
    return Explanation("metal", outcome, actions=actions)


def _actions(events: tuple[Event, ...], held_back: str) -> Iterator[Action]:
    """A write of the machine's status is shown where it makes the machine ready."""
    for event in events:
        if isinstance(event, Happens):
            yield Action("wait for", event.who, event.what)
        elif event.subresource is None:
            yield Action(event.verb, f"{event.kind.kind.lower()}/{event.name}", event.why, held_back)
        elif _makes_ready(event.body):
            yield Action("report Ready", f"{event.kind.kind.lower()}/{event.name}", event.why, held_back)


def _makes_ready(body: dict[str, object]) -> bool:
    status = body.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return any(one["type"] == names.READY and one["status"] == "True" for one in conditions)
