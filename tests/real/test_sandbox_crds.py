"""The API server takes our compact CRDs and the published ones, and objects survive going from one to the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hostler.errors import Complaint
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import MODULES, OWN, definitions_of, install_crds
from tests.real.conftest import Eventually
from tests.real.metal_world import take_out

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds"

HOST = {
    "apiVersion": "metal3.io/v1alpha1",
    "kind": "BareMetalHost",
    "metadata": {"name": "host-0"},
    "spec": {"online": True, "bmc": {"address": "redfish://10.0.0.1", "credentialsName": "bmc"}},
}


def test_our_own_definitions_are_served(sandbox: Sandbox, namespace: str) -> None:
    # Another test may have left the published ones, and what is there is not replaced.
    take_out(sandbox, [one for name in OWN for one in definitions_of(name, Silent())])
    install_crds(sandbox, OWN, Silent())
    sandbox.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(HOST))

    def patch(body: dict[str, object], *more: str) -> None:
        words = ("patch", "bmh", "host-0", "-n", namespace, "--type=merge", *more, "-p", json.dumps(body))
        sandbox.kubectl(*words)

    with pytest.raises(Complaint, match=r"(?s)provisioning.ID: Required value.*poweredOn: Required value"):
        patch({"status": {"provisioning": {"state": "available"}}}, "--subresource=status")
    whole = {"provisioning": {"ID": "", "state": "available"}, "errorMessage": "", "operationalStatus": "OK"}
    given = {**whole, "poweredOn": False, "somethingNew": {"kept": True}}
    patch({"status": given}, "--subresource=status")
    status = sandbox.get("bmh", "host-0", "-n", namespace)["status"]
    assert status == {**given, "errorCount": 0, "provisioningFailCount": 0}, "unknown fields stay, defaults are added"
    wrong = {"online": "perhaps", "bootMode": "toaster", "bootMACAddress": "none"}
    for field, value in wrong.items():
        with pytest.raises(Complaint, match=field):
            patch({"spec": {field: value}})


def test_the_published_ones_take_their_place(sandbox: Sandbox, namespace: str, eventually: Eventually) -> None:
    if not PUBLISHED.exists():
        count = sum(len(definitions_of(name, Silent())) for name in OWN)
        pytest.skip(f"{count} published CRDs not installed: they are not here")
    install_crds(sandbox, OWN, Silent())
    sandbox.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(HOST))
    files = sorted(PUBLISHED.glob("*/*.yaml"))
    documents = "\n---\n".join(json.dumps(yaml.load(file.read_text(), Loader=yaml.CSafeLoader)) for file in files)
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=documents)
    try:
        # The published schema drops what ours keeps, once the API server uses it.
        wrong = '{"spec":{"somethingNew":true}}'
        words = ("patch", "bmh", "host-0", "-n", namespace, "--type=merge", "--dry-run=server", "-o=json", "-p", wrong)
        eventually(lambda: "somethingNew" not in sandbox.kubectl(*words), what="the published schema counts")
        assert sandbox.get("bmh", "host-0", "-n", namespace)["spec"]["online"] is True
    finally:
        take_out(sandbox, [one for name in OWN for one in definitions_of(name, Silent())])


@pytest.mark.parametrize("name", MODULES)
def test_published_modules_are_kept_for_the_next_time(name: str) -> None:
    definitions = definitions_of(name, Silent())
    kinds = {one["spec"]["names"]["kind"] for one in definitions}
    expected = {
        "capi": {"Machine", "Cluster", "MachineSet"},
        "openshift": {"Infrastructure", "IngressController", "Ingress"},
    }
    assert expected[name] <= kinds
