"""GRUB whose grub.cfg has its entries in it: ours goes into the owner's custom.cfg, which that grub.cfg reads."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.agent import kernel_arguments
from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import grub_config
from hostler.agent.loaders.grub import Grub, GrubState, find_config
from hostler.agent.loaders.loader import OURS, TITLE, BootLoader, Selected
from hostler.agent.refusal import Reason, Refusal


class GrubStatic(Grub):
    name = "GRUB without blscfg"

    @classmethod
    def find(cls, host: Host) -> BootLoader | None:
        found = find_config(host)
        if found is None or grub_config.reads_entries(found[1]):
            return None
        directory, config = found
        return cls(host, "", directory, config, [f"{directory}/grub.cfg"])

    @staticmethod
    def render(kernel: str, initrd: str, words: Sequence[str]) -> str:
        """A menu entry that finds its own filesystem by our file on it.

        Unrestricted: where the owner set a password, GRUB would wait for a person to type it.
        """
        options = kernel_arguments.quote_for_grub(words, expands=False)
        return "\n".join(
            [
                f"menuentry '{TITLE}' --unrestricted --id {OURS} {{",
                f"\tsearch --no-floppy --set=root --file {initrd}",
                f"\tlinux {kernel} {options}",
                f"\tinitrd {initrd}",
                "}",
            ]
        )

    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        if early := self.config.read_too_early:
            raise Refusal(
                Reason.UNKNOWN_BOOTLOADER,
                f"{self.directory}/grub.cfg sets its default after it has read {early}, so an entry there cannot be "
                "chosen.",
            )
        if not self.hook:
            raise Refusal(
                Reason.UNKNOWN_BOOTLOADER,
                f"{self.directory}/grub.cfg reads neither entries nor a custom.cfg, so nothing can be added to it.",
            )
        text = self.render(self.spell_path(kernel), self.spell_path(initrd), words)
        self.write_block(text, *([grub_config.TAKE_NEXT] if self.needs_block() else []))
        return self.select(OURS)

    def read_paths(self, selected: Selected) -> tuple[str, str]:
        linux, initrd, _ = grub_config.parse_menuentry(self.host.text(self.hook) or "")
        return linux, initrd

    def read_state(self) -> GrubState:
        ours = grub_config.parse_menuentry(self.read_variables()[1])[2]
        installed, mine = ("",), (ours,) if ours else ()  # whatever the installed system's entry is called
        return self.make_state((*installed, *mine) if self.config.hook_is_last else (*mine, *installed))
