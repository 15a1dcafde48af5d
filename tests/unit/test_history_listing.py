"""The history fits terminals of any width, and reads like a sentence."""

from __future__ import annotations

from hostler.history.listing import entry_rows, narrow_lines
from hostler.history.model import Entry, What
from hostler.history.wire import HistoryAnswer

AT = 1_763_435_385.0  # 2025-11-18 03:09:45
KEY = "node:prod/gpu-7"
ENTRIES = (
    Entry("3.4", AT + 86400, "", What.GAP, reason="Interrupted", sentence="Up to 2 seconds may be missing."),
    Entry("3.3", AT + 20, KEY, What.REFUSAL, "maintenance", reason="NoHost", sentence="No ESXi host is free."),
    Entry("3.2", AT + 15, KEY, What.ACTION, "maintenance", reason="EvictPod", result="429", sentence="1 pod: a/b."),
    Entry("3.1", AT, KEY, What.TRANSITION, "maintenance", "in service", "draining", "", "esx1 enters.", 600.0),
)
ANSWER = HistoryAnswer(ENTRIES, {KEY: "gpu-7"}, complete=True)


def test_rows_tell_what_happened_the_oldest_first() -> None:
    assert entry_rows(ANSWER) == [
        ("2025-11-18 03:09:45", "gpu-7", "maintenance", "in service -> draining", "10m", "esx1 enters."),
        ("2025-11-18 03:10:00", "gpu-7", "maintenance", "EvictPod 429", "", "1 pod: a/b."),
        ("2025-11-18 03:10:05", "gpu-7", "maintenance", "refused: NoHost", "", "No ESXi host is free."),
        ("2025-11-19 03:09:45", "-", "", "gap: Interrupted", "", "Up to 2 seconds may be missing."),
    ]
    assert entry_rows(ANSWER, more=True)[2][-3:] == ("NoHost", "", "3.3")


def test_a_narrow_terminal_has_the_sentence_below() -> None:
    assert narrow_lines(ANSWER) == [
        "2025-11-18 UTC",
        "03:09:45  gpu-7  in service -> draining after 10m",
        "          esx1 enters.",
        "03:10:00  gpu-7  EvictPod 429",
        "          1 pod: a/b.",
        "03:10:05  gpu-7  refused: NoHost",
        "          No ESXi host is free.",
        "2025-11-19 UTC",
        "03:09:45  -      gap: Interrupted",
        "          Up to 2 seconds may be missing.",
    ]


def test_an_unseen_change_is_marked_as_inferred() -> None:
    entry = Entry("3.5", AT, KEY, What.INFERRED, old="draining", new="stopped")
    assert entry_rows(HistoryAnswer((entry,), {}, complete=True))[0][1:4] == (KEY, "", "draining -> stopped (inferred)")
