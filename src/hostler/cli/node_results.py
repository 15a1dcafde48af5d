"""One command for several nodes: each ends in its own way, the worst is the exit code, a summary says it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from hostler.cli.cluster import complaint_of
from hostler.cli.printing import Output, print_data, print_names, print_note
from hostler.errors import Complaint, Exit
from hostler.host.conditions import count, names
from hostler.kube.errors import ApiError, Unreachable, WriteRefused

NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended for one node. `word` is what the summary counts: held, released, drained, refused."""

    node: str
    word: str
    why: str
    code: Exit = Exit.OK
    hint: str = ""
    data: dict[str, Any] = field(default_factory=dict)  # what else `-o json` says of it


async def one_by_one(nodes: Sequence[str], act: Callable[[str], Awaitable[Ended]]) -> list[Ended]:
    """Do it for each node and say how it went. A refusal is that node's alone; without an API server all ends."""
    found: list[Ended] = []
    for at, node in enumerate(nodes):
        try:
            ended = await act(node)
        except (Complaint, ApiError, WriteRefused) as error:
            ended = refused(node, complaint_of(error))
        except Unreachable as error:
            if not found:
                raise  # whoever asked says more exactly what is wrong
            found.append(refused(node, complaint_of(error)))
            _tell(found[-1])
            return [
                *found,
                *(Ended(one, NOT_TRIED, f"{one} was not tried.", Exit.UNREACHABLE) for one in nodes[at + 1 :]),
            ]
        found.append(ended)
        _tell(ended)
    return found


def refused(node: str, complaint: Complaint) -> Ended:
    """The end of a node that it did not work for."""
    word = "refused" if complaint.code is Exit.REFUSED else "failed"
    return Ended(node, word, complaint.sentence, complaint.code, complaint.hint)


def _tell(ended: Ended) -> None:
    print_note(f"hostler: {ended.why}" if ended.code else ended.why)
    if ended.hint:
        print_note(ended.hint)


def report(found: Sequence[Ended], output: Output, *, dry_run: bool) -> None:
    """Print what came of it, and leave with the worst of the exit codes."""
    if output.is_data:
        print_data({"dryRun": dry_run, "nodes": [data_of(one) for one in found]}, output)
    elif output is Output.NAME:
        print_names(f"node/{one.node}" for one in found if not one.code)
    if len(found) > 1:
        print_note(summarise(found, dry_run=dry_run))
    if worst := max(one.code for one in found):
        raise typer.Exit(worst)


def data_of(ended: Ended) -> dict[str, Any]:
    return {"node": ended.node, "result": ended.word, "why": ended.why, "code": int(ended.code), **ended.data}


def summarise(found: Iterable[Ended], *, dry_run: bool) -> str:
    """`4 nodes: 2 drained, 1 refused (w3), 1 not tried (w4).` Every node that it did not work for is named."""
    ended = list(found)
    words = Counter(one.word for one in ended)
    parts = []
    for word, number in words.items():
        failed = [one.node for one in ended if one.word == word and one.code]
        parts.append(f"{number} {word}" + (f" ({names(failed, limit=len(failed))})" if failed else ""))
    return f"{'Would be: ' if dry_run else ''}{count(len(ended), 'node')}: {', '.join(parts)}."
