"""How entries are shown to people, for terminals of any width. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from hostler.history.model import Entry, What
from hostler.history.wire import HistoryAnswer
from hostler.inventory.listing import age_text

WIDE_COLUMNS = 110  # from here on the sentence stands beside the rest, else below it
COLUMNS = ("time (utc)", "host", "by", "what", "after", "why")
MORE_COLUMNS = ("reason", "operation", "id")


def entry_rows(answer: HistoryAnswer, *, more: bool = False) -> list[tuple[str, ...]]:
    """The oldest first, in `COLUMNS`; with `more` also in `MORE_COLUMNS`."""
    return [
        (
            datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S"), name_of(answer, entry),
            entry.capability, what_of(entry), duration_text(entry), entry.sentence,
            *((entry.reason, entry.operation, entry.id) if more else ()),
        )
        for entry in reversed(answer.entries)
    ]  # fmt: skip


def narrow_lines(answer: HistoryAnswer) -> list[str]:
    """The same for a narrow terminal: two lines each, the sentence below, and the date only where it changes."""
    lines, day = list[str](), ""
    width = max((len(name_of(answer, entry)) for entry in answer.entries), default=0)
    for entry in reversed(answer.entries):
        at = datetime.fromtimestamp(entry.at, UTC)
        if (today := at.strftime("%Y-%m-%d UTC")) != day:
            day = today
            lines.append(day)
        after = f" after {text}" if (text := duration_text(entry)) else ""
        lines.append(f"{at:%H:%M:%S}  {name_of(answer, entry):{width}}  {what_of(entry)}{after}".rstrip())
        if entry.sentence:
            lines.append(f"          {entry.sentence}")
    return lines


def what_of(entry: Entry) -> str:
    """`in service -> draining`, `EvictPod ok`, `refused: NoHost`."""
    change = f"{entry.old or '-'} -> {entry.new}"
    match entry.what:
        case What.TRANSITION:
            return change
        case What.INFERRED:
            return f"{change} (inferred)"
        case What.ACTION:
            return " ".join(filter(None, (entry.reason, entry.result)))
        case What.REFUSAL:
            return f"refused: {entry.reason}"
        case What.GAP:
            return f"gap: {entry.reason}"


def duration_text(entry: Entry) -> str:
    """How long the state that was left had lasted."""
    return "" if entry.duration is None else age_text(0.0, entry.duration)


def name_of(answer: HistoryAnswer, entry: Entry) -> str:
    return answer.names.get(entry.key, entry.key) or "-"
