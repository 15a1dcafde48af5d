"""The one door to commands of the host. Nothing else in the agent starts a process."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from hostler.agent.problem import Reason, Refusal

# The pod sees the host's processes (hostPID), so the first of them is the host's init.
ENTER_HOST = ("nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--")
PATIENCE = 120.0


class Executor:
    """Runs a command in the host's own namespaces: what it sees is the host, not the pod."""

    def __init__(self, enter: Sequence[str] = ENTER_HOST) -> None:
        self.enter = tuple(enter)

    def run(self, *command: str, reason: Reason = Reason.COMMAND_FAILED) -> str:
        """The command's output; a Refusal with its last line where it fails, is missing, or does not end."""
        return self._run(self.enter, command, reason, "on the host")

    def here(self, *command: str) -> str:
        """The same in the pod's own namespaces, for what only the pod sees."""
        return self._run((), command, Reason.COMMAND_FAILED, "in the pod")

    def _run(self, enter: Sequence[str], command: Sequence[str], reason: Reason, where: str) -> str:
        spelled = " ".join(command)
        try:
            done = subprocess.run(
                [*enter, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refusal(reason, f"`{spelled}` did not end within {PATIENCE:g} s {where}.") from None
        except OSError as error:
            raise Refusal(reason, f"`{spelled}` could not be started {where}: {error.strerror}.") from error
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Refusal(reason, f"`{spelled}` ended with {done.returncode} {where}: {said}")
        return done.stdout
