"""The forms for issues in .github/ISSUE_TEMPLATE, with the capabilities as they are in the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from hostler.capabilities import CAPABILITIES

Json = dict[str, Any]
HEAD = "# Made from src/hostler/ship/issue_forms.py by `make chart`: edit that.\n"


def list_forms() -> Iterator[tuple[str, str]]:
    """The name and text of each form."""
    yield "bug.yml", HEAD + yaml.safe_dump(_bug(), sort_keys=False, width=1000)
    yield "proposal.yml", HEAD + yaml.safe_dump(_proposal(), sort_keys=False, width=1000)


def _bug() -> Json:
    return {
        "name": "Bug",
        "description": "Hostler did something wrong, or did nothing where it should have acted.",
        "labels": ["bug"],
        "body": [
            _note("Report a weakness in security privately, as SECURITY.md says, and not here."),
            _capability("Which capability is it about?"),
            _text("what", "What happened, and what did you expect?", "`hostler explain KIND/NAME` shows the decision."),
            _text("how", "How can it be reproduced?", "A test in the style of `tests/real` is welcome and not needed."),
            _text("version", "Versions", "Output of `hostler version` and `kubectl version`; the vCenter's, if any."),
            _text("doctor", "Output of `hostler doctor`", "It names what is wrong with the installation.", "text"),
            _note("`hostler bundle` makes an archive without secrets. Look through it, then drag it into this form."),
        ],
    }


def _proposal() -> Json:
    return {
        "name": "Proposal",
        "description": "Something that Hostler should do. SCOPE.md says what it will not do.",
        "labels": ["proposal"],
        "body": [
            _capability("Which capability does it belong to?"),
            _text("need", "What do you want to achieve, and what is in the way today?"),
            _text("harm", "What could go wrong with it on a production cluster?"),
        ],
    }


def _note(text: str) -> Json:
    return {"type": "markdown", "attributes": {"value": text}}


def _capability(label: str) -> Json:
    options = [*(capability.name for capability in CAPABILITIES), "command line", "chart or image", "something else"]
    attributes = {"label": label, "options": options}
    return {"type": "dropdown", "id": "capability", "attributes": attributes, "validations": {"required": True}}


def _text(id: str, label: str, description: str = "", render: str = "") -> Json:
    attributes = {"label": label, **({"description": description} if description else {}),
                  **({"render": render} if render else {})}  # fmt: skip
    return {"type": "textarea", "id": id, "attributes": attributes, "validations": {"required": not render}}
