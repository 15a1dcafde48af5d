"""What `clusterctl generate cluster` makes clusters of bare metal hosts from: three templates and a ClusterClass. Pure.

| flavour | what |
|---|---|
| (default) | a control plane by kubeadm with its own etcd, workers that are remediated when unhealthy |
| external-etcd | the same with an etcd that is there already |
| topology | a Cluster of the class `hostler-metal3` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hostler.apis.metal3 import GROUP

Json = dict[str, Any]
CLASS = "hostler-metal3"
CORE, BOOTSTRAP, PLANE = "cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"
NAME, WORKERS, CONTROL_PLANE = "${CLUSTER_NAME}", "${CLUSTER_NAME}-workers", "${CLUSTER_NAME}-control-plane"
VERSION = "${KUBERNETES_VERSION}"
# A machine of metal takes its time to boot: it tests its memory, and is installed before.
STARTUP_SECONDS, UNHEALTHY_SECONDS = 3600, 300
ETCD_FILES = {
    "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
    "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
}


class Bare(str):
    """Stands in YAML without quotes: a variable for a number or a list."""


def cluster_template(*, external_etcd: bool = False) -> list[Json]:
    """A cluster with its templates, one object for each thing that can be changed later."""
    endpoint = {"host": "${CLUSTER_APIENDPOINT_HOST}", "port": Bare("${CLUSTER_APIENDPOINT_PORT:=6443}")}
    image = {
        "url": "${IMAGE_URL}", "checksum": "${IMAGE_CHECKSUM}", "checksumType": "${IMAGE_CHECKSUM_TYPE:=sha256}",
        "diskFormat": "${IMAGE_FORMAT:=qcow2}",
    }  # fmt: skip
    etcd = {"endpoints": Bare("[${ETCD_ENDPOINTS}]"), **ETCD_FILES} if external_etcd else None
    labels = {"nodepool": WORKERS}
    return [
        _object(f"{CORE}/v1beta2", "Cluster", NAME, {
            "clusterNetwork": _NETWORK,
            "infrastructureRef": _reference(GROUP, "Metal3Cluster", NAME),
            "controlPlaneRef": _reference(PLANE, "KubeadmControlPlane", CONTROL_PLANE),
        }),
        _object(f"{GROUP}/v1beta2", "Metal3Cluster", NAME, {
            "controlPlaneEndpoint": endpoint, "cloudProviderEnabled": False,
        }),
        _object(f"{PLANE}/v1beta2", "KubeadmControlPlane", CONTROL_PLANE, {
            "replicas": Bare("${CONTROL_PLANE_MACHINE_COUNT}"), "version": VERSION,
            "machineTemplate": {
                "spec": {"infrastructureRef": _reference(GROUP, "Metal3MachineTemplate", CONTROL_PLANE)}
            },
            "kubeadmConfigSpec": _control_plane_config(etcd),
        }),
        _object(f"{GROUP}/v1beta2", "Metal3MachineTemplate", CONTROL_PLANE, _machine(image, NAME)),
        _object(f"{CORE}/v1beta2", "MachineDeployment", WORKERS, {
            "clusterName": NAME, "replicas": Bare("${WORKER_MACHINE_COUNT}"),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": NAME, "version": VERSION,
                    "bootstrap": {"configRef": _reference(BOOTSTRAP, "KubeadmConfigTemplate", WORKERS)},
                    "infrastructureRef": _reference(GROUP, "Metal3MachineTemplate", WORKERS),
                },
            },
        }),
        _object(f"{GROUP}/v1beta2", "Metal3MachineTemplate", WORKERS, _machine(image, NAME)),
        _object(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate", WORKERS, _worker_config()),
        _data_template(),
        _object(f"{CORE}/v1beta2", "MachineHealthCheck", WORKERS, {
            "clusterName": NAME, "selector": {"matchLabels": labels}, **_health_check(WORKERS),
        }),
        _object(f"{GROUP}/v1beta2", "Metal3RemediationTemplate", WORKERS, _remediation()),
    ]  # fmt: skip


def topology_template() -> list[Json]:
    """A Cluster of our class. What can be changed later is a variable of its topology."""
    variables = {
        "endpoint": {"host": "${CLUSTER_APIENDPOINT_HOST}", "port": Bare("${CLUSTER_APIENDPOINT_PORT:=6443}")},
        "image": {
            "url": "${IMAGE_URL}", "checksum": "${IMAGE_CHECKSUM}", "checksumType": "${IMAGE_CHECKSUM_TYPE:=sha256}",
            "diskFormat": "${IMAGE_FORMAT:=qcow2}",
        },
        "dataTemplate": NAME,
        "etcdEndpoints": Bare("[${ETCD_ENDPOINTS:= }]"),
    }  # fmt: skip
    workers = {"class": "workers", "name": "workers", "replicas": Bare("${WORKER_MACHINE_COUNT}")}
    return [
        _object(f"{CORE}/v1beta2", "Cluster", NAME, {
            "clusterNetwork": _NETWORK,
            "topology": {
                "classRef": {"name": CLASS}, "version": VERSION,
                "controlPlane": {"replicas": Bare("${CONTROL_PLANE_MACHINE_COUNT}")},
                "workers": {"machineDeployments": [workers]},
                "variables": [{"name": name, "value": value} for name, value in variables.items()],
            },
        }),
        _data_template(),
    ]  # fmt: skip


def cluster_class() -> list[Json]:
    """The class `hostler-metal3` with its templates; what differs between clusters is filled in by its patches."""
    plane, workers = f"{CLASS}-control-plane", f"{CLASS}-workers"
    # Each of these is replaced by a patch.
    nowhere = {"host": "endpoint.invalid", "port": 6443}
    image = {"url": "http://image.invalid", "checksum": "0", "checksumType": "sha256", "diskFormat": "qcow2"}
    spec: Json = {
        "infrastructure": _class_template(GROUP, "Metal3ClusterTemplate", CLASS),
        "controlPlane": {
            **_class_template(PLANE, "KubeadmControlPlaneTemplate", plane),
            "machineInfrastructure": _class_template(GROUP, "Metal3MachineTemplate", plane),
        },
        "workers": {
            "machineDeployments": [{
                "class": "workers",
                "bootstrap": _class_template(BOOTSTRAP, "KubeadmConfigTemplate", workers),
                "infrastructure": _class_template(GROUP, "Metal3MachineTemplate", workers),
                "healthCheck": _health_check(workers),
            }]
        },
        "variables": list(_class_variables()),
        "patches": list(_patches()),
    }  # fmt: skip
    return [
        _of_class(f"{CORE}/v1beta2", "ClusterClass", CLASS, spec),
        _of_class(f"{GROUP}/v1beta2", "Metal3ClusterTemplate", CLASS, _template({
            "controlPlaneEndpoint": nowhere, "cloudProviderEnabled": False,
        })),
        _of_class(f"{PLANE}/v1beta2", "KubeadmControlPlaneTemplate", plane, _template({
            "kubeadmConfigSpec": _control_plane_config(None),
        })),
        _of_class(f"{GROUP}/v1beta2", "Metal3MachineTemplate", plane, _machine(image, CLASS)),
        _of_class(f"{GROUP}/v1beta2", "Metal3MachineTemplate", workers, _machine(image, CLASS)),
        _of_class(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate", workers, _worker_config()),
        _of_class(f"{GROUP}/v1beta2", "Metal3RemediationTemplate", workers, _remediation()),
    ]  # fmt: skip


# -- parts of both

_NETWORK: Json = {
    "pods": {"cidrBlocks": ["${POD_CIDR:=192.168.0.0/16}"]},
    "services": {"cidrBlocks": ["${SERVICE_CIDR:=10.96.0.0/12}"]},
}


def _object(version: str, kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": "${NAMESPACE}"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _of_class(version: str, kind: str, name: str, spec: Json) -> Json:
    """clusterctl says the namespace: that of the Cluster."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _reference(group: str, kind: str, name: str) -> Json:
    return {"apiGroup": group, "kind": kind, "name": name}


def _class_template(group: str, kind: str, name: str) -> Json:
    return {"templateRef": {"apiVersion": f"{group}/v1beta2", "kind": kind, "name": name}}


def _template(spec: Json) -> Json:
    return {"template": {"spec": spec}}


def _machine(image: Mapping[str, Any], data: str) -> Json:
    return _template({"automatedCleaningMode": "metadata", "dataTemplate": {"name": data}, "image": dict(image)})


def _registration() -> Json:
    """The node has the name of its Machine, and the label by which the operator finds it."""
    arguments = [{"name": "node-labels", "value": "metal3.io/uuid={{ ds.meta_data.uuid }}"}]
    return {"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}", "kubeletExtraArgs": arguments}}


def _worker_config() -> Json:
    return _template({"joinConfiguration": _registration()})


def _control_plane_config(etcd: Mapping[str, Any] | None) -> Json:
    config: Json = {"initConfiguration": _registration(), "joinConfiguration": _registration()}
    return {**({"clusterConfiguration": {"etcd": {"external": dict(etcd)}}} if etcd else {}), **config}


def _data_template() -> Json:
    names = [{"key": key, "object": "machine"} for key in ("name", "local-hostname", "local_hostname")]
    return _object(f"{GROUP}/v1beta2", "Metal3DataTemplate", NAME, {
        "clusterName": NAME, "metaData": {"objectNames": names},
    })  # fmt: skip


def _health_check(remediation: str) -> Json:
    unhealthy = [
        {"type": "Ready", "status": status, "timeoutSeconds": UNHEALTHY_SECONDS} for status in ("False", "Unknown")
    ]
    reference = {"apiVersion": f"{GROUP}/v1beta2", "kind": "Metal3RemediationTemplate", "name": remediation}
    return {
        "checks": {"nodeStartupTimeoutSeconds": STARTUP_SECONDS, "unhealthyNodeConditions": unhealthy},
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}, "templateRef": reference},
    }


def _remediation() -> Json:
    return _template({"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 600}})


# -- the variables of the class


def _class_variables() -> Iterator[Json]:
    text: Json = {"type": "string"}
    yield _variable("endpoint", required=["host", "port"], properties={"host": text, "port": {"type": "integer"}})
    yield _variable(
        "image", required=["url"],
        properties={"url": text, "checksum": text, "checksumType": text, "diskFormat": text},
    )  # fmt: skip
    yield {"name": "dataTemplate", "required": True, "schema": {"openAPIV3Schema": text}}
    yield {
        "name": "etcdEndpoints",
        "required": False,
        "schema": {"openAPIV3Schema": {"type": "array", "items": text, "default": []}},
    }


def _variable(name: str, **schema: Any) -> Json:
    return {"name": name, "required": True, "schema": {"openAPIV3Schema": {"type": "object", **schema}}}


def _patches() -> Iterator[Json]:
    everywhere = {"controlPlane": True, "machineDeploymentClass": {"names": ["workers"]}}
    spec = "/spec/template/spec"
    yield _patch("endpoint", "Metal3ClusterTemplate", {"infrastructureCluster": True}, _replace(
        f"{spec}/controlPlaneEndpoint", "endpoint",
    ))  # fmt: skip
    yield _patch("machines", "Metal3MachineTemplate", everywhere, _replace(f"{spec}/image", "image"), _replace(
        f"{spec}/dataTemplate/name", "dataTemplate",
    ))  # fmt: skip
    files = "".join(f"\n  {name}: {path}" for name, path in ETCD_FILES.items())
    etcd = f"external:\n  endpoints: {{{{ .etcdEndpoints | toJson }}}}{files}\n"
    plane = _patch("etcd", "KubeadmControlPlaneTemplate", {"controlPlane": True}, {
        "op": "add", "path": f"{spec}/kubeadmConfigSpec/clusterConfiguration",
        "valueFrom": {"template": f"etcd:\n  {etcd.replace(chr(10), chr(10) + '  ').rstrip()}\n"},
    })  # fmt: skip
    yield {**plane, "enabledIf": "{{ if .etcdEndpoints }}true{{ end }}"}


def _replace(path: str, variable: str) -> Json:
    return {"op": "replace", "path": path, "valueFrom": {"variable": variable}}


_GROUPS = {"KubeadmControlPlaneTemplate": PLANE}


def _patch(name: str, kind: str, where: Json, *changes: Json) -> Json:
    selector = {"apiVersion": f"{_GROUPS.get(kind, GROUP)}/v1beta2", "kind": kind, "matchResources": where}
    return {"name": name, "definitions": [{"selector": selector, "jsonPatches": list(changes)}]}
