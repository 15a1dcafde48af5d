"""Why a step could not be done: a word for the hub and a sentence for the person who reads it."""

from __future__ import annotations

import errno
import re
from enum import Enum


class Reason(Enum):
    """One word per cause; it becomes the reason of the Agent's condition."""

    NO_SPACE = "NoSpace"
    ARTIFACTS_UNAVAILABLE = "ArtifactsUnavailable"
    DOWNLOAD_FAILED = "DownloadFailed"
    WRONG_HASH = "WrongHash"
    UNTRUSTED_CERTIFICATE = "UntrustedCertificate"
    UNKNOWN_BOOTLOADER = "UnknownBootloader"
    SECURE_BOOT = "SecureBoot"
    NOT_ONE_SHOT = "NotOneShot"
    ENTRY_NOT_VERIFIABLE = "EntryNotVerifiable"
    BAD_ARGUMENTS = "BadArguments"
    COMMAND_FAILED = "CommandFailed"
    DISK_FAILED = "DiskFailed"
    REBOOT_FAILED = "RebootFailed"
    BOOTED_BACK = "BootedBack"
    UNKNOWN_STEP = "UnknownStep"


_ACCOUNT, _AFTER_PATH = re.compile(r"(\w+://)[^\s/?#@]*@"), re.compile(r"(\w+://[^\s?#]*)[?#]\S*")


def discreet(sentence: str) -> str:
    """Without what addresses in it have before their host and after their path: that may be a secret."""
    return _AFTER_PATH.sub(r"\1", _ACCOUNT.sub(r"\1", sentence))


class Refusal(Exception):
    """A step that is not done, or not done to the end. Nothing was left half-written."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        self.reason = reason
        self.sentence = discreet(sentence)
        super().__init__(self.sentence)


def disk_refusal(error: OSError, sentence: str) -> Refusal:
    """Trouble with the host's disk; that it is full is told apart, because a person can mend it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = " Make room on it, and try again." if full else ""
    reason = Reason.NO_SPACE if full else Reason.DISK_FAILED
    return Refusal(reason, f"{sentence}: {error.strerror or error}.{hint}")
