"""How the seed's controller looks at vCenter, written anew: every object asked for on its own, every 30 seconds.

    python -m bench.peers.seed_polling --host 127.0.0.1 --port 41213 --user U --looks 2 < password

For each look: every host's name, maintenance mode and recent tasks with their info; every VM's name and host, to find
the workers on a host. Prints a JSON line when a host is seen entering and one at the end of each look. It only looks:
what it would do next is not measured.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
from importlib import import_module
from typing import Any

# Loaded as values: pyVmomi's own annotations know neither its properties nor its calls.
connect: Any = import_module("pyVim.connect")
vim: Any = import_module("pyVmomi").vim


class Counted:
    """Counts the calls a stub makes."""

    def __init__(self, stub: Any) -> None:
        self.number = 0
        invoke_method, invoke_accessor = stub.InvokeMethod, stub.InvokeAccessor

        def method(*args: Any) -> Any:
            self.number += 1
            return invoke_method(*args)

        def accessor(*args: Any) -> Any:
            self.number += 1
            return invoke_accessor(*args)

        stub.InvokeMethod, stub.InvokeAccessor = method, accessor


def every(content: Any, kind: Any) -> list[Any]:
    view = content.viewManager.CreateContainerView(content.rootFolder, [kind], True)
    try:
        return list(view.view)
    finally:
        view.Destroy()


def look(content: Any, seen: set[str]) -> None:
    """One poll, object by object."""
    for host in every(content, vim.HostSystem):
        name, _ = host.name, host.runtime.inMaintenanceMode
        for task in host.recentTask:
            info = task.info
            if info.descriptionId == "HostSystem.enterMaintenanceMode" and info.state == "running" and name not in seen:
                seen.add(name)
                say(word="entering", host=name)
    workers: dict[str, list[str]] = {}
    for vm in every(content, vim.VirtualMachine):
        name, runtime = vm.name, vm.runtime
        workers.setdefault(runtime.host._moId if runtime.host else "", []).append(name)


def say(**what: object) -> None:
    print(json.dumps({"at": time.time(), "cpu": time.process_time(), **what}), flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--host", required=True)
    args.add_argument("--port", type=int, default=443)
    args.add_argument("--user", required=True)
    args.add_argument("--interval", type=float, default=30.0)
    args.add_argument("--looks", type=int, default=2)
    chosen = args.parse_args()
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    password = sys.stdin.readline().rstrip("\n")
    si = connect.SmartConnect(host=chosen.host, port=chosen.port, user=chosen.user, pwd=password, sslContext=trust)
    counted, seen = Counted(si._stub), set[str]()
    content = si.content
    for number in range(chosen.looks):
        if number:
            time.sleep(chosen.interval)
        before, begin = counted.number, time.monotonic()
        look(content, seen)
        say(word="looked", calls=counted.number - before, seconds=time.monotonic() - begin)
    connect.Disconnect(si)


if __name__ == "__main__":
    main()
