"""Ask the hub for the next step, do it, say how it went; until the hub says that it is over."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from dataclasses import dataclass

from hostler.agent import boot_entry, steps
from hostler.agent.executor import Executor
from hostler.agent.fetch import Web
from hostler.agent.host import Host
from hostler.agent.hub import Hub, Instructions, NoAnswer, Step
from hostler.agent.refusal import Reason, Refusal, disk_refusal

REPORT_EVERY = 5.0
LONGEST_PAUSE = 60.0
# A report that does not get through is tried so often; then the hub asks for the step again.
REPORT_ATTEMPTS = 5
# While the host goes down the hub is asked once more, and not for long.
LAST_WORD = 10.0


@dataclass
class Runner:
    host: Host
    web: Web
    executor: Executor
    hub: Hub
    pod: steps.Pod
    stopping: threading.Event
    pause: float = 1.0
    mount_given: bool = False  # the pod spec said where the host's root is; it knows better than the hub
    stay: bool = False  # wait to be ended when it is over: a DaemonSet would start an ended agent again and again
    silence: float = 1800.0  # so long the hub may be silent before the entry is taken back
    restart: float = 900.0  # so long a restart may take
    restarting: Step | None = None
    armed: str | None = None  # where an entry of ours is known to be; empty: somewhere

    def run(self) -> None:
        """Until the hub says exit, or the pod is told to end. What was not rebooted into is taken back."""
        with self.host.alone(self._wait_for_other) as mine:
            if mine:  # else the other one does all this
                self._run()

    def _wait_for_other(self) -> bool:
        log("Another agent is at work on this host; waiting until it has ended.")
        return self.stopping.wait(5 * self.pause)

    def _run(self) -> None:
        self.armed = boot_entry.find_armed(self.host)
        self._work()
        if self.stay and self.restarting is not None:
            self._await_restart(self.restarting)
        while not self._leave() and self.stay and not self.stopping.wait(LONGEST_PAUSE):
            pass
        if self.stay:
            self.stopping.wait()

    def _work(self) -> None:
        failures, heard = 0, time.monotonic()
        while not self.stopping.is_set():
            try:
                told = self.hub.instructions()
            except NoAnswer as no:
                failures += 1
                wait = min(LONGEST_PAUSE, self.pause * 2 ** min(failures, 10))
                log(f"No instructions: {no}. Asking again in {wait:.0f} s.")
                if time.monotonic() - heard > self.silence:
                    log(f"The hub has not answered for {self.silence:.0f} s.")
                    heard = time.monotonic() if self._leave() else heard
                self.stopping.wait(wait)
                continue
            except Refusal as refusal:
                log(f"An instruction cannot be done: {refusal.sentence}")
                self.stopping.wait(LONGEST_PAUSE)
                continue
            if self._obey(told):
                break
            failures, heard = 0, time.monotonic()
            self.stopping.wait(told.ask_again)

    def _obey(self, told: Instructions) -> bool:
        """Do the steps; whether it is over."""
        for step in told.steps:
            if self.stopping.is_set():
                return True
            self._do(step, last=told.ends)
        return told.ends

    def _do(self, step: Step, *, last: bool) -> None:
        log(f"Step {step.type} ({step.id}).")
        try:
            output = self._perform(step)
        except Refusal as refusal:
            self._failed(step, refusal, last)
        except OSError as error:
            self._failed(step, disk_refusal(error, "The host's disk failed"), last)
        else:
            log(f"Done: {output}")
            # That it restarts is not what ends it, so the hub need not hear it.
            self._report(step, 0, output, "", last and self.restarting is None)

    def _failed(self, step: Step, refusal: Refusal, last: bool) -> None:
        reason, sentence = refusal.reason.value, refusal.sentence
        log(f"{reason}: {sentence}")
        if last:
            self._leave()  # first: the hub may not hear of it for long
        self._report(step, 1, json.dumps({"reason": reason}), sentence, last)

    def _perform(self, step: Step) -> str:
        host = self.host
        mount = step.arguments.get("host_fs_mount_dir")
        if isinstance(mount, str) and mount and not self.mount_given:
            host = self.host = Host(mount)
        if step.type == steps.DOWNLOAD:
            try:
                return steps.download(host, self.web, self.executor, self.pod, step.arguments, self._progress(step))
            finally:
                self.armed = boot_entry.find_armed(host) or self.armed
        if step.type == steps.REBOOT:
            # Said before it is done: the restart ends this process too, and must not take its own entry back.
            self.restarting, self.armed = step, self.armed or ""  # it is asked for only where an entry was written
            try:
                return steps.reboot(host, self.executor, self.pod)
            except (Refusal, OSError):
                self.restarting = None
                raise
        raise Refusal(Reason.UNKNOWN_STEP, f"This agent does not know the step {step.type!r}.")

    def _progress(self, step: Step) -> steps.Say:
        reported, last = time.monotonic(), ""

        def say(stage: str, percent: int) -> None:
            nonlocal reported, last
            now = time.monotonic()
            if self.stopping.is_set():
                raise Refusal(Reason.DOWNLOAD_FAILED, "The agent was told to end.")
            if last == stage and now - reported < REPORT_EVERY:
                return
            reported, last = now, stage
            try:
                output = json.dumps({"stage": stage, "percent": min(100, percent)})
                self.hub.report(Step("progress", step.id, {}), 0, output, "")
            except NoAnswer as no:
                log(f"Progress was not reported: {no}.")

        return say

    def _report(self, step: Step, exit_code: int, output: str, error: str, last: bool) -> None:
        """`last`: no step follows, so it is repeated until the hub has it, or the pod is told to end."""
        for attempt in itertools.count() if last else range(REPORT_ATTEMPTS):
            try:
                self.hub.report(step, exit_code, output, error)
                return
            except NoAnswer as no:
                log(f"The result of {step.type} was not reported: {no}.")
                if self.stopping.wait(min(LONGEST_PAUSE, self.pause * 2 ** min(attempt, 10))):
                    return

    def _await_restart(self, step: Step) -> None:
        """The restart ends this process. If it never comes, or is called off, a later one must not find the entry."""
        until = time.monotonic() + self.restart
        while time.monotonic() < until:
            ended = self.stopping.wait(min(LONGEST_PAUSE, self.restart / 10))
            if self._called_off():
                log("The restart was called off.")
                self.restarting = None
                return
            if ended:  # by the restart, as far as anybody knows: the entry is for it
                return
        self.restarting = None
        sentence = (
            f"The host was told to restart {self.restart / 60:.0f} minutes ago and did not; the discovery entry is "
            "removed from it. See `systemctl list-jobs` on the host, then try again."
        )
        self._failed(step, Refusal(Reason.REBOOT_FAILED, sentence), True)

    def _called_off(self) -> bool:
        """Whether the hub says that this reclaim is over. Silence says nothing: hosts lose their network first."""
        try:
            told = self.hub.instructions(LAST_WORD)
        except (NoAnswer, Refusal):
            return False
        return told.ends and not told.steps

    def _leave(self) -> bool:
        """A host that is not being restarted by us must not find discovery at its next restart; whether that holds."""
        if self.restarting is not None:
            return True
        try:
            if boot_entry.undo_all(self.host, self.executor, self.armed):
                self.armed = None
                log("The discovery entry was removed; this host starts its installed system.")
        except (Refusal, OSError) as error:
            log(f"The discovery entry could not be removed: {error}")
            return False
        return True


def log(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
