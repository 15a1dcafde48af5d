"""The agent's command line: everything comes from the pod spec, as environment. `python -m hostler.agent`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from hostler.agent import steps
from hostler.agent.executor import Executor
from hostler.agent.fetch import PATIENCE, Web
from hostler.agent.host import Host
from hostler.agent.hub import Hub, read_token
from hostler.agent.refusal import Refusal
from hostler.agent.runner import Runner, log

NEEDED = ("HUB_URL", "INFRA_ENV_ID", "HOST_ID", "TOKEN_FILE")
OPTIONAL = {
    "HUB_PLAIN_HTTP": "true: accept a HUB_URL with http://; anyone on the network path chooses what the host boots",
    "CA_FILE": "certificates to trust; without it the system's",
    "HOST_MOUNT": "where the host's root is mounted; without it as the hub says, at first /host",
    "EXPECTED_BOOT_ID": "the boot this began in (/proc/sys/kernel/random/boot_id); without it every step is refused",
    "KERNEL_URL, INITRD_URL, ROOTFS_URL": "the boot artifacts, where a step does not name them",
    "ENTER_HOST": "words before a command of the host; without them it is run in the namespaces of process 1",
    "RETRY_SECONDS": "the first pause before another attempt; 1",
    "PATIENCE_SECONDS": "how long a step tries to fetch what may yet come; 2700",
    "SILENCE_SECONDS": "how long the hub may be silent before the discovery entry is taken back; 1800",
    "RESTART_SECONDS": "how long a restart may take before it counts as failed; 900",
    "REQUIRE_ONE_SHOT": "true: refuse a host whose boot loader would start discovery at later boots too",
    "CLEAN_BOOT": "true: where the boot partition lacks room, run `rpm-ostree cleanup --rollback` on the host",
    "STAY": "true: wait to be ended when it is over, as a DaemonSet's pod should",
}


def main(arguments: list[str]) -> int:
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing or arguments:
        log(f"The agent takes its settings from the environment; missing: {', '.join(missing) or 'nothing'}.")
        for name, meaning in OPTIONAL.items():
            log(f"  {name}: {meaning}")
        return 3
    if not os.environ["HUB_URL"].lower().startswith("https://") and not _is_on("HUB_PLAIN_HTTP"):
        log("HUB_URL is not https://, so anyone on the network path could choose what it boots; nothing is done.")
        return 3
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        runner = _runner(stopping)
    except (Refusal, ValueError) as error:
        log(str(error))
        return 3
    runner.run()
    return 0


def _runner(stopping: threading.Event) -> Runner:
    given = os.environ
    pause = float(given.get("RETRY_SECONDS") or 1)
    artifacts = {name.lower(): given[name] for name in ("KERNEL_URL", "INITRD_URL", "ROOTFS_URL") if given.get(name)}
    token = Path(given["TOKEN_FILE"])
    web = Web(
        given.get("CA_FILE", ""), pause, origin=given["HUB_URL"], secret=lambda: read_token(token),
        patience=float(given.get("PATIENCE_SECONDS") or PATIENCE), wait=stopping.wait,
    )  # fmt: skip
    return Runner(
        host=Host(given.get("HOST_MOUNT") or "/host"),
        web=web,
        executor=Executor(shlex.split(given.get("ENTER_HOST", ""))),
        hub=Hub(web, given["HUB_URL"], given["INFRA_ENV_ID"], given["HOST_ID"], given["TOKEN_FILE"]),
        pod=steps.Pod(
            given["INFRA_ENV_ID"], given.get("EXPECTED_BOOT_ID", ""), artifacts,
            require_one_shot=_is_on("REQUIRE_ONE_SHOT"), clean_boot=_is_on("CLEAN_BOOT"),
        ),
        stopping=stopping,
        pause=pause,
        mount_given=bool(given.get("HOST_MOUNT")),
        stay=_is_on("STAY"),
        silence=float(given.get("SILENCE_SECONDS") or Runner.silence),
        restart=float(given.get("RESTART_SECONDS") or Runner.restart),
    )  # fmt: skip


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "yes", "1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
