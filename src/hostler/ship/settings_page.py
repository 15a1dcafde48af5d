"""docs/settings.md, made from the table of settings by `make chart`."""

from __future__ import annotations

from itertools import groupby

from hostler.capabilities import SETTINGS
from hostler.settings.model import AnySetting

HEAD = """\
# Settings

Made from the tables of settings by `make chart`; a test compares the two.

Each setting can be given in three ways, the first wins:

1. a flag of `hostler run` (`--max-unavailable 3`),
2. a variable in the environment (`MAX_UNAVAILABLE=3`; an empty one counts as unset),
3. a key in the YAML file named by `--config` or `HOSTLER_CONFIG` (`max_unavailable: 3`).

Flag and key are the variable's name without `HOSTLER_`. `hostler config` prints every value and where it came from,
`hostler config --running` those of the running operator. A wrong value, an unknown key in the file and an unknown
`HOSTLER_...` variable stop the operator before anything starts; all mistakes are listed at once, each with its source
and what is allowed. Secrets have no flag, because a command line can be read by every user of the machine, and are
printed as `***`.

What a cluster's owner decides, rather than whoever runs the operator, is in the Fleet object: see [fleet.md](fleet.md).
`Fleet.spec.maxUnavailable` wins over `MAX_UNAVAILABLE`.

The commands of people (`hostler pause`, `hold`, `drain`, ...) read only the settings they use: a mistake in another
one never keeps anybody from the stop button.
"""


def markdown() -> str:
    parts = [HEAD]
    for section, settings in groupby(SETTINGS, key=lambda setting: setting.section):
        parts.append(f"\n## {section.capitalize()}\n\n| variable | flag | default | what it is |\n|---|---|---|---|\n")
        parts += [row(setting) for setting in settings]
    return "".join(parts)


def row(setting: AnySetting) -> str:
    default = setting.show(setting.default)
    flag = f"`{setting.flag}`" if setting.has_flag else "none: a secret"
    allowed = "" if setting.reader.allowed == "any text" else f" Must be {setting.reader.allowed}."
    shown = f"`{default}`" if default else "unset"
    return f"| `{setting.name}` | {flag} | {shown} | {setting.help}{allowed} |\n".replace("N|N%", "N or N%")
