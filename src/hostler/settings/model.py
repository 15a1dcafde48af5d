"""What a setting is, and the resolved values with where each came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hostler.settings.readers import Reader

T = TypeVar("T")
HIDDEN = "***"
PREFIX = "HOSTLER_"


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting. `name` is its environment variable, exactly; flag and file key are made from it.

    Names that would be too common for a shared environment carry `HOSTLER_`, which flag and key leave out:
    `HOSTLER_LOG_FORMAT` is `--log-format` and `log_format`; `MAX_UNAVAILABLE` is `--max-unavailable`.
    """

    name: str
    reader: Reader[T]
    default: T
    help: str
    section: str  # of docs/settings.md and of the help; the name of the capability where it belongs to one
    secret: bool = False
    in_file: bool = True

    @property
    def key(self) -> str:
        return self.name.removeprefix(PREFIX).lower()

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def has_flag(self) -> bool:
        """A secret has none: a command line can be read by every user of the machine."""
        return not self.secret

    def show(self, value: T) -> str:
        """For people; a secret is never shown, only whether there is one."""
        shown = self.reader.show(value)
        return HIDDEN if self.secret and shown else shown


AnySetting = Setting[Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value and where it came from: `flag --x`, `environment X`, `file F line 3` or `default`."""

    setting: AnySetting
    value: Any
    source: str
    wrong: bool = False  # `value` is then the text that could not be read

    @property
    def shown(self) -> str:
        if self.wrong:
            return f"{HIDDEN if self.setting.secret else self.value} (wrong: must be {self.setting.reader.allowed})"
        return self.setting.show(self.value)


@dataclass(frozen=True, slots=True)
class Given:
    """The text somebody gave for a setting, and where."""

    text: str
    source: str


class Settings:
    """The values of one run. Read with the setting itself, so that the type is known: `settings[DRY_RUN]`."""

    def __init__(self, values: Mapping[str, Resolved]) -> None:
        self._values = dict(values)

    def __getitem__(self, setting: Setting[T]) -> T:
        value: T = self._values[setting.name].value
        return value

    def __iter__(self) -> Iterator[Resolved]:
        return iter(self._values.values())

    def __repr__(self) -> str:
        """Safe to log: secrets are hidden."""
        return f"Settings({', '.join(f'{item.setting.key}={item.shown}' for item in self)})"

    def source(self, setting: AnySetting) -> str:
        return self._values[setting.name].source

    def given(self, setting: AnySetting) -> bool:
        """Somebody chose this value; it is not the default."""
        return self.source(setting) != "default"


# A rule over several settings: None, or one sentence saying what does not fit together.
Rule = Callable[[Settings], str | None]


def nearest(word: str, known: Collection[str]) -> str:
    """` Did you mean X?`, or nothing where no name is near. `HOSTLER_DRY_RUN` is near to `DRY_RUN`."""
    bare = word.removeprefix(PREFIX)
    if bare in known:
        return f" Did you mean {bare}?"
    import difflib  # only ever needed for a mistake

    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else ""
