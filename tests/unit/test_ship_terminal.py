"""The picture of a terminal: what was printed, in its colours, and nothing from elsewhere."""

from __future__ import annotations

from xml.etree import ElementTree

from hostler.ship.terminal import draw


def test_a_transcript_is_drawn_as_it_was_printed() -> None:
    drawn = draw("$ hostler status\n\x1b[1;32mReady\x1b[0m <all> └── is well\n")
    texts = [one.text or "" for one in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    shown = "".join(texts).replace("\xa0", " ")
    assert "$ hostler status" in shown
    assert "Ready <all> └── is well" in shown
    assert "font-weight: bold" in drawn
    assert "url(http" not in drawn
    assert draw("x") == draw("x")
