"""Ask the hub for the next step, do it, say how it went; until the hub says that it is over."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from dataclasses import dataclass

from hostler.agent import bootentry, steps
from hostler.agent.executor import Executor
from hostler.agent.fetch import Web
from hostler.agent.host import Host
from hostler.agent.hub import Hub, Instructions, NoAnswer, Step
from hostler.agent.problem import Reason, Refusal

REPORT_EVERY = 5.0
LONGEST_PAUSE = 60.0
# A report that does not get through is tried so often; then the hub asks for the step again.
REPORT_ATTEMPTS = 5


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
    restarting: bool = False

    def run(self) -> None:
        """Until the hub says exit, or the pod is told to end. What was not rebooted into is taken back."""
        failures = 0
        while not self.stopping.is_set():
            try:
                told = self.hub.instructions()
            except NoAnswer as no:
                failures += 1
                wait = min(LONGEST_PAUSE, self.pause * 2 ** min(failures, 10))
                log(f"No instructions: {no}. Asking again in {wait:.0f} s.")
                self.stopping.wait(wait)
                continue
            except Refusal as refusal:
                log(f"An instruction cannot be done: {refusal.sentence}")
                self.stopping.wait(LONGEST_PAUSE)
                continue
            failures = 0
            if self._obey(told):
                break
            self.stopping.wait(told.ask_again)
        self._leave()

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
            log(f"{refusal.reason.value}: {refusal.sentence}")
            self._report(step, 1, json.dumps({"reason": refusal.reason.value}), refusal.sentence, last)
        except OSError as error:
            sentence = f"The host's disk failed: {error.strerror or error}."
            log(sentence)
            self._report(step, 1, json.dumps({"reason": Reason.DISK_FAILED.value}), sentence, last)
        else:
            log(f"Done: {output}")
            self._report(step, 0, output, "", last)

    def _perform(self, step: Step) -> str:
        host = self.host
        mount = step.arguments.get("host_fs_mount_dir")
        if isinstance(mount, str) and mount and not self.mount_given:
            host = self.host = Host(mount)
        if step.type == steps.DOWNLOAD:
            return steps.download(host, self.web, self.executor, self.pod, step.arguments, self._progress(step))
        if step.type == steps.REBOOT:
            # Said before it is done: the restart ends this process too, and must not take its own entry back.
            self.restarting = True
            try:
                return steps.reboot(host, self.executor, self.pod)
            except Refusal:
                self.restarting = False
                raise
        raise Refusal(Reason.UNKNOWN_STEP, f"This agent knows no step {step.type!r}.")

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
        """`last`: nobody asks for this step again, so it is said until it is heard, or the pod is told to end."""
        for attempt in itertools.count() if last else range(REPORT_ATTEMPTS):
            try:
                self.hub.report(step, exit_code, output, error)
                return
            except NoAnswer as no:
                log(f"The result of {step.type} was not reported: {no}.")
                if self.stopping.wait(min(LONGEST_PAUSE, self.pause * 2 ** min(attempt, 10))):
                    return

    def _leave(self) -> None:
        """A host that is not being restarted by us must not find discovery at its next restart."""
        if self.restarting:
            return
        try:
            if bootentry.undo(self.host, self.executor):
                log("The discovery entry was removed; this host starts its installed system.")
        except (Refusal, OSError) as error:
            log(f"The discovery entry could not be removed: {error}")


def log(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
