"""metaData and networkData, byte for byte: one expected file per kind of source, and a sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hostler.apis.metal3 import BareMetalHost
from hostler.apis.metal3_data import DataTemplate, IpAddressSpec, PoolRef
from hostler.kube.records import Metadata
from hostler.metal.data.content import (
    CannotRender,
    Context,
    check_links,
    netmask,
    pools_of,
    render_meta_data,
    render_network_data,
)

EXPECTED = Path(__file__).parent / "metal_expected"
NICS = [{"name": "eth0", "mac": "02:00:00:00:00:01"}, {"name": "eth1", "mac": "02:00:00:00:00:02"}]
OTHER = PoolRef("other", "InClusterIPPool", "ipam.cluster.x-k8s.io")
ADDRESSES = {
    PoolRef("four"): IpAddressSpec(
        address="10.0.0.11", prefix=24, gateway="10.0.0.1", dns_servers=("8.8.8.8", "8.8.4.4")
    ),
    PoolRef("six"): IpAddressSpec(address="2001:db8::11", prefix=64, gateway="2001:db8::1"),
    OTHER: IpAddressSpec(address="172.16.0.5", prefix=20, gateway="172.16.0.1"),
}
HOST = msgspec.convert(
    {
        "metadata": {"name": "host-1", "namespace": "n", "labels": {"rack": "r7"}, "annotations": {"pool": "four"}},
        "spec": {"bootMACAddress": "02:00:00:00:00:09"},
        "status": {"hardware": {"hostname": "h", "nics": NICS}},
    },
    BareMetalHost,
)
CONTEXT = Context(
    Metadata(name="machine-1", namespace="n", annotations={"note": "from machine", "mac": "02:00:00:00:00:bb"}),
    Metadata(name="m3m-1", namespace="n"),
    HOST,
    3,
    "n",
    ADDRESSES,
)
STATIC = {"string": "02:00:00:00:00:01"}

META: dict[str, Any] = {
    "strings": [{"key": "a", "value": "one"}, {"key": "b", "value": "yes"}],
    "objectNames": [
        {"key": "machine", "object": "machine"},
        {"key": "m3m", "object": "Metal3Machine"},
        {"key": "host", "object": "baremetalhost"},
    ],
    "indexes": [{"key": "plain"}, {"key": "stepped", "offset": 10, "step": 2, "prefix": "node-", "suffix": "-x"}],
    "namespaces": [{"key": "ns"}],
    "fromHostInterfaces": [{"key": "mac", "interface": "eth1"}, {"key": "boot", "fromBootMAC": True}],
    "fromLabels": [
        {"key": "rack", "object": "baremetalhost", "label": "rack"},
        {"key": "missing", "object": "machine", "label": "none"},
    ],
    "fromAnnotations": [{"key": "note", "object": "machine", "annotation": "note"}],
    "ipAddressesFromPool": [{"key": "ip", "name": "four"}, {"key": "six", "name": "six"}],
    "prefixesFromPool": [{"key": "prefix", "name": "four"}],
    "gatewaysFromPool": [{"key": "gateway", "name": "four"}],
    "dnsServersFromPool": [{"key": "dns", "name": "four"}],
}
GATEWAY = {"fromIPPool": "four"}
NETWORK: dict[str, Any] = {
    "ethernets": {
        "links": {
            "ethernets": [
                {"id": "eth0", "type": "phy", "macAddress": {"fromHostInterface": "eth0"}},
                {
                    "id": "eth1",
                    "type": "phy",
                    "name": "fast0",
                    "mtu": 9000,
                    "macAddress": {"string": "02:00:00:00:00:aa"},
                },
                {
                    "id": "eth2",
                    "type": "phy",
                    "macAddress": {"fromAnnotation": {"object": "machine", "annotation": "mac"}},
                },
            ]
        }
    },
    "bonds": {
        "links": {
            "bonds": [
                {
                    "id": "bond0",
                    "bondMode": "802.3ad",
                    "bondXmitHashPolicy": "layer3+4",
                    "bondLinks": ["eth0", "eth1"],
                    "macAddress": STATIC,
                    "parameters": [{"name": "miimon", "value": 100}],
                }
            ]
        }
    },
    "vlans": {"links": {"vlans": [{"id": "vlan5", "vlanID": 5, "vlanLink": "eth0", "macAddress": STATIC}]}},
    "ipv4": {
        "networks": {
            "ipv4": [
                {
                    "id": "net4",
                    "link": "eth0",
                    "ipAddressFromIPPool": "four",
                    "routes": [
                        {
                            "network": "0.0.0.0",
                            "prefix": 0,
                            "gateway": GATEWAY,
                            "services": {"dns": ["1.1.1.1"], "dnsFromIPPool": "four"},
                        }
                    ],
                }
            ]
        }
    },
    "ipv6": {
        "networks": {
            "ipv6": [
                {
                    "id": "net6",
                    "link": "eth0",
                    "ipAddressFromIPPool": "six",
                    "routes": [{"network": "::", "prefix": 0, "gateway": {"string": "2001:db8::1"}}],
                }
            ]
        }
    },
    "dynamic": {
        "networks": {
            "ipv4DHCP": [
                {
                    "id": "dhcp4",
                    "link": "eth0",
                    "routes": [{"network": "198.51.0.0", "prefix": 16, "gateway": {"string": "192.0.2.1"}}],
                }
            ],
            "ipv6DHCP": [{"id": "dhcp6", "link": "eth0"}],
            "ipv6SLAAC": [{"id": "slaac", "link": "eth0"}],
        }
    },
    "fromPoolRef": {
        "networks": {
            "ipv4": [
                {
                    "id": "other",
                    "link": "eth0",
                    "fromPoolRef": {"name": "other", "kind": OTHER.kind, "apiGroup": OTHER.group},
                    "routes": [
                        {
                            "network": "0.0.0.0",
                            "gateway": {"fromPoolRef": {"name": "other", "kind": OTHER.kind, "apiGroup": OTHER.group}},
                        }
                    ],
                },
                {
                    "id": "annotated",
                    "link": "eth0",
                    "fromPoolAnnotation": {"object": "baremetalhost", "annotation": "pool"},
                },
            ]
        }
    },
    "services": {"services": {"dns": ["9.9.9.9"], "dnsFromIPPool": "four"}},
}


def template(**spec: Any) -> DataTemplate:
    return msgspec.convert({"spec": spec}, DataTemplate)


@pytest.mark.parametrize("source", META)
def test_meta_data(source: str) -> None:
    asked = template(metaData={source: META[source]}).spec.meta_data
    assert asked is not None
    assert render_meta_data(asked, CONTEXT) == (EXPECTED / f"meta-{source}.yaml").read_bytes()


@pytest.mark.parametrize("source", NETWORK)
def test_network_data(source: str) -> None:
    asked = template(networkData=NETWORK[source]).spec.network_data
    assert asked is not None
    assert render_network_data(asked, CONTEXT) == (EXPECTED / f"network-{source}.yaml").read_bytes()


@pytest.mark.parametrize(
    "text", ["08", "1e3", "0.5E-2", ".5", "5.", "-7", "0o17", "y", "N", "no", "null", "~", "0x1f", "1_0"]
)
def test_a_text_that_some_reader_takes_for_something_else_is_quoted(text: str) -> None:
    """Go's YAML, which Baremetal Operator reads with, knows numbers and truths that Python's takes for texts."""
    asked = template(metaData={"strings": [{"key": "a", "value": text}]}).spec.meta_data
    assert asked is not None
    assert render_meta_data(asked, CONTEXT) == f"a: '{text}'\nproviderid: n/host-1/m3m-1\n".encode()


def test_every_expected_file_is_compared() -> None:
    files = {file.name for file in EXPECTED.iterdir()}
    assert files == {f"meta-{one}.yaml" for one in META} | {f"network-{one}.yaml" for one in NETWORK}


def test_which_pools_are_claimed() -> None:
    whole = template(
        metaData={"ipAddressesFromPool": [{"key": "ip", "name": "four"}]},
        networkData={**NETWORK["fromPoolRef"], "services": {"dnsFromIPPool": "six"}},
    )
    assert pools_of(whole, CONTEXT) == [PoolRef("four"), OTHER, PoolRef("six")]
    assert [one.metal3 for one in pools_of(whole, CONTEXT)] == [True, False, True]
    assert pools_of(template(), CONTEXT) == []


def test_a_pool_by_annotation_comes_before_every_other() -> None:
    """As the API says of fromPoolAnnotation: the other ways are ignored then."""
    every = {
        "fromPoolRef": {"name": "other", "kind": OTHER.kind, "apiGroup": OTHER.group},
        "fromPoolAnnotation": {"object": "baremetalhost", "annotation": "pool"},
    }
    route = {"network": "0.0.0.0", "gateway": {**every, "fromIPPool": "six"}}
    network = {"id": "n", "link": "eth0", **every, "ipAddressFromIPPool": "six", "routes": [route]}
    pool = PoolRef(str(CONTEXT.of("baremetalhost").annotations["pool"]))
    assert pools_of(template(networkData={"networks": {"ipv4": [network]}}), CONTEXT) == [pool]


ETHERNET = {"id": "e", "type": "phy"}


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            {"links": {"ethernets": [{**ETHERNET, "macAddress": {"fromHostInterface": "eth9"}}]}},
            "no network interface 'eth9'",
        ),
        ({"links": {"ethernets": [{**ETHERNET, "macAddress": {"string": "nonsense"}}]}}, "is no MAC address"),
        ({"links": {"ethernets": [{**ETHERNET, "macAddress": {}}]}}, "has no MAC address"),
        (
            {
                "links": {
                    "ethernets": [
                        {**ETHERNET, "macAddress": {"fromAnnotation": {"object": "machine", "annotation": "x"}}}
                    ]
                }
            },
            "no annotation x",
        ),
        ({"networks": {"ipv4": [{"id": "n", "link": "l"}]}}, "names no pool"),
        (
            {"networks": {"ipv4": [{"id": "n", "link": "l", "ipAddressFromIPPool": "none"}]}},
            "no address from IPPool none",
        ),
        (
            {
                "links": {
                    "bonds": [{"id": "b", "bondMode": "x", "macAddress": STATIC, "parameters": [{"name": "mode"}]}]
                }
            },
            "a field of its own",
        ),
    ],
)
def test_what_cannot_be_rendered_is_a_sentence(network: Any, says: str) -> None:
    asked = template(networkData=network).spec.network_data
    assert asked is not None
    with pytest.raises(CannotRender, match=says):
        render_network_data(asked, CONTEXT)


def test_an_unknown_object_is_a_sentence() -> None:
    asked = template(metaData={"objectNames": [{"key": "k", "object": "toaster"}]}).spec.meta_data
    assert asked is not None
    with pytest.raises(CannotRender, match="no object 'toaster'"):
        render_meta_data(asked, CONTEXT)


def test_masks() -> None:
    assert netmask(20, False) == "255.255.240.0"
    assert netmask(64, True) == "ffff:ffff:ffff:ffff::"
    with pytest.raises(CannotRender, match="64 is no prefix of an IPv4 network"):
        netmask(64, False)


LINKS = {
    "ethernets": [{"id": "eth0", "type": "phy"}],
    "bonds": [{"id": "bond0", "bondLinks": ["eth0"]}],
    "vlans": [{"id": "v7", "vlanLink": "bond0"}],
}


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"links": {**LINKS, "bonds": [{"id": "bond0", "bondLinks": ["eth0", "eth1"]}]}}, "links.bonds bond0: bondLi"),
        ({"links": {**LINKS, "vlans": [{"id": "v7", "vlanLink": "eth1"}]}}, "links.vlans v7: vlanLink names 'eth1'"),
        *(
            ({"links": LINKS, "networks": {kind: [{"id": "n", "link": "eth1"}]}}, f"networks.{kind} n: link names")
            for kind in ("ipv4", "ipv6", "ipv4DHCP", "ipv6DHCP", "ipv6SLAAC")
        ),
        ({"networks": {"ipv4DHCP": [{"id": "n", "link": "eth0"}]}}, r"among the links \(none\)"),
    ],
)
def test_a_link_that_is_not_there_is_named_with_its_field(network: Any, says: str) -> None:
    broken = template(networkData=network).spec.network_data
    whole = template(networkData={"links": LINKS, "networks": {"ipv4": [{"id": "n", "link": "v7"}]}}).spec.network_data
    assert broken is not None
    assert whole is not None
    check_links(whole)
    with pytest.raises(CannotRender, match=says):
        check_links(broken)
