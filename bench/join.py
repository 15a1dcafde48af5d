"""1,000 hosts ask to become nodes at once: seconds until each is approved, and requests per certificate request.

Real API server, real keys, the operator as a process. Requests are counted in the API server's audit log.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from bench.runtime import machine, say, write_section
from hostler.install.apply import install
from hostler.instant import iso
from hostler.join.model import CLIENT, SIGNING_REQUEST, SigningRequest
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import FLEET, NAMESPACE
from hostler.kube.records import Object
from hostler.sandbox import Options, Sandbox

ACCOUNT = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
OPERATOR = "bench-join"
SECONDS_MOST = 300.0


def body(name: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = base64.b64encode(made.public_bytes(Encoding.PEM)).decode()
    spec = {"request": request, "signerName": CLIENT, "usages": ["digital signature", "client auth"]}
    return {"metadata": {"name": f"csr-{name}"}, "spec": spec}


def as_somebody(box: Sandbox, folder: Path, user: str, *groups: str) -> Path:
    read = yaml.safe_load(box.kubeconfig.read_text())
    for one in read["users"]:
        one["user"] |= {"as": user, **({"as-groups": list(groups)} if groups else {})}
    path = folder / f"{user.rpartition(':')[2]}.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path


async def prepare(client: Client, hosts: int) -> None:
    await install(client)
    await client.create(NAMESPACE, {"metadata": {"name": "hostler"}}, type=Object)
    now = time.time()
    expected = [{"name": f"host-{n:05d}", "since": iso(now - 5), "until": iso(now + 3600)} for n in range(hosts)]
    await client.create(FLEET, {"metadata": {"name": "cluster"}, "spec": {"join": {"expected": expected}}}, type=Object)


async def ask(kubeconfig: Path, bodies: list[dict[str, Any]]) -> None:
    async with Client(load(str(kubeconfig), None)) as client:
        limit = asyncio.Semaphore(32)

        async def one(given: dict[str, Any]) -> None:
            async with limit:
                await client.create(SIGNING_REQUEST, given, type=Object)

        await asyncio.gather(*(one(given) for given in bodies))


async def approved(client: Client) -> int:
    found = await client.list(SIGNING_REQUEST, type=SigningRequest)
    return sum(any(said.type == "Approved" for said in one.status.conditions) for one in found)


def started(box: Sandbox, folder: Path) -> subprocess.Popen[bytes]:
    path = as_somebody(box, folder, OPERATOR, "system:masters")
    words = ["run", "--only", "join", "--http-address", "127.0.0.1:0", "--log-format", "json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(path)}
    with (folder / "operator.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "hostler", *words], stdout=log, stderr=log, env=environment)
    end = time.monotonic() + 60
    while b'"leading"' not in (folder / "operator.log").read_bytes():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit((folder / "operator.log").read_text()[-2000:])
        time.sleep(0.1)
    time.sleep(2)
    return process


def counted(box: Sandbox) -> Counter[str]:
    """What the operator asked of the API server beside its watches and its lease, by resource."""
    found: Counter[str] = Counter()
    for entry in box.audit():
        if entry.get("impersonatedUser", {}).get("username") == OPERATOR:
            resource = entry["objectRef"].get("resource", "")
            sub = entry["objectRef"].get("subresource", "")
            if resource not in ("leases", "selfsubjectreviews"):
                found[f"{resource}/{sub}" if sub else resource] += 1
    return found


async def run(hosts: int) -> list[str]:
    key = ec.generate_private_key(ec.SECP256R1())
    bodies = [body(f"host-{number:05d}", key) for number in range(hosts)]
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        box = Sandbox.up(folder / "sandbox", Options(audit=True, kwok=False))
        try:
            async with Client(load(str(box.kubeconfig), None)) as client:
                await prepare(client, hosts)
                box.kubectl(
                    "create", "clusterrolebinding", "bench-bootstrapper", "--clusterrole=system:node-bootstrapper",
                    f"--serviceaccount={':'.join(ACCOUNT.split(':')[2:])}",
                )  # fmt: skip
                process = started(box, folder)
                try:
                    before = counted(box)
                    say(f"{hosts} requests are made")
                    begun = time.monotonic()
                    await ask(as_somebody(box, folder, ACCOUNT), bodies)
                    made = time.monotonic() - begun
                    while (now := await approved(client)) < hosts:
                        if time.monotonic() - begun > SECONDS_MOST:
                            raise SystemExit(f"only {now} of {hosts} approved after {SECONDS_MOST:.0f} s")
                        await asyncio.sleep(0.2)
                    done = time.monotonic() - begun
                    spent = counted(box) - before
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(60)
        finally:
            box.down()
    total = sum(spent.values())
    return [
        f"{hosts} expected hosts, one certificate request each, made at once by one bootstrapper (real keys).",
        "",
        "| what | measured | wanted |",
        "|---|---|---|",
        f"| all requests made by the client | {made:.1f} s | - |",
        f"| all approved, from the first request on | {done:.1f} s | <= 15 s |",
        f"| all approved, from the last request on | {done - made:.1f} s | - |",
        f"| requests per certificate request | {total / hosts:.2f} | <= 2 |",
        "",
        "Requests, watches and the lease apart: " + ", ".join(f"{n} {what}" for what, n in spent.most_common()) + ".",
    ]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--hosts", type=int, default=1000)
    args.add_argument("--dry", action="store_true", help="print only, write no results")
    chosen = args.parse_args()
    head = ["## join", "", machine() + ".", ""]
    text = "\n".join([*head, *asyncio.run(run(chosen.hosts))])
    print(text)
    if not chosen.dry:
        write_section("join", text)


if __name__ == "__main__":
    main()
