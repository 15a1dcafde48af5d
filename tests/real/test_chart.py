"""The chart with every set of values in chart/ci: linted, rendered, scanned for privilege, taken by an API server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from hostler import __version__
from hostler.capabilities import CAPABILITIES, read_settings
from hostler.errors import Complaint
from hostler.explain.callers import READER
from hostler.explain.client import PORT_NAME
from hostler.install.admission import BINDING, POLICY
from hostler.install.grants import limits_of, rights_for
from hostler.install.people import people_roles
from hostler.install.roles import Account, roles
from hostler.reclaim.hub.server import BASE
from hostler.sandbox import Sandbox
from tests.leftovers import LEFT_BEHIND
from tests.real.conftest import Eventually
from tests.real.helming import CHART, SERVED, SETS, Helm, Object, bound, for_people, granted, only, rendered

FOREIGN = {"ServiceMonitor", "PrometheusRule", "Route"}  # of the Prometheus operator and OpenShift: not in the sandbox
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
ON = {
    "default": [],
    "maintenance": ["maintenance"],
    "dry-run": ["maintenance"],
    "bare-metal": ["join", "metal"],
    "reclaim": ["reclaim"],
    "everything": [one.name for one in CAPABILITIES if not one.always],
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def charts(helm: Helm) -> dict[str, str]:
    """What `helm template` makes of each set, as text: comments count too."""
    return {
        name: helm("template", "hostler", str(CHART), "-n", "there", "-f", str(path), *SERVED)
        for name, path in SETS.items()
    }


def test_it_passes_the_strict_lint(helm: Helm) -> None:
    assert set(SETS) == set(ON)
    for path in SETS.values():
        assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "-f", str(path))


@pytest.mark.parametrize("name", ON)
def test_the_rights_are_those_of_the_table_and_of_what_is_on(charts: dict[str, str], name: str) -> None:
    values = yaml.safe_load(SETS[name].read_text())
    made = list(granted(rendered(charts[name])))
    settings = values.get("settings", {})
    account = Account("there", lease=settings.get("HOSTLER_LEASE_NAME", "hostler"), limits=limits_of(settings))
    table = roles(rights_for(ON[name]), account, openshift=values.get("openshift", False))
    wanted = list(granted(table)) if values.get("rbac", {}).get("create", True) else []
    assert sorted(set(made)) == sorted(set(wanted))


@pytest.mark.parametrize("name", ON)
def test_nothing_has_more_privilege_than_it_needs(charts: dict[str, str], name: str) -> None:
    found = rendered(charts[name])
    for place, group, resource, verb, named in granted(found):
        assert "*" not in (group, resource, verb)
        assert verb not in ("update", "deletecollection", "escalate", "bind", "impersonate")
        own = place == "there" and (named == "hostler-vcenter-trust" or verb == "create")
        assert (resource == "secrets" and not own) <= bool({"metal", "reclaim"} & {*ON[name]}), "few see secrets"
    # A rule and, right above it, its reason.
    reasons = re.findall(r"  # [a-z]+: [A-Z].+\.\n  - apiGroups:", charts[name])
    assert len(reasons) == sum(len(one["rules"]) for one in bound(found))
    for binding in (one for one in found if one["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        assert [subject["kind"] for subject in binding["subjects"]] == ["ServiceAccount"]
    pod = only(found, "Deployment")["spec"]["template"]["spec"]
    for field in ("hostNetwork", "hostPID", "hostIPC", "hostUsers"):
        assert not pod.get(field)
    assert pod["securityContext"]["runAsNonRoot"]
    # OpenShift's restricted-v2 refuses numbers outside the namespace's range, and gives its own.
    numbers = {pod["securityContext"].get(key) for key in ("runAsUser", "runAsGroup", "fsGroup")}
    assert numbers == {None if "openshift: true" in SETS[name].read_text() else 65532}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume}
    assert kinds <= {"name", "secret", "configMap", "persistentVolumeClaim"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert "memory" in container["resources"]["limits"]
    assert not [one for one in container["env"] if "PASSWORD" in one["name"] and not one["name"].endswith("_FILE")]


# As its owner would write it into the Secret, with the CA beside it.
HISTORY_URL = "postgresql://hostler:secret@db/hostler?sslrootcert=/etc/hostler/history/ca.crt"


def told(found: list[Object]) -> dict[str, str]:
    """The environment of the container, with stand-ins for what only the cluster knows."""
    (container,) = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    given: dict[str, str] = dict(next(one for one in found if one["metadata"]["name"].endswith("-settings"))["data"])
    known = {"HOSTLER_HISTORY_URL": HISTORY_URL}
    return given | {
        one["name"]: one.get("value", known.get(one["name"], "from the cluster")) for one in container["env"]
    }


@pytest.mark.parametrize("name", ON)
def test_the_operator_understands_what_it_is_told(charts: dict[str, str], name: str) -> None:
    settings = read_settings({}, told(rendered(charts[name])) | {"HOSTLER_OPERATOR_NAMESPACE": "there"})
    shown = {one.setting.name: one.shown for one in settings}
    assert shown["HOSTLER_ONLY"] == ",".join(sorted(ON[name], key=[one.name for one in CAPABILITIES].index))
    assert shown["HOSTLER_OPERATOR_NAMESPACE"] == "there"
    if name == "maintenance":
        assert shown["DRAIN_TIMEOUT_SECONDS"] == "2592000", "no 2.592e+06 on the way"
        assert shown["HOSTLER_LEASE_NAME"] == "gpu"
    if name == "dry-run":
        assert shown["DRY_RUN"] == "true"
        assert only(rendered(charts[name]), "Secret")["stringData"]["VCENTER_PASSWORD"].startswith('with "quotes"')


def test_it_stays_off_the_nodes_it_may_empty(charts: dict[str, str]) -> None:
    pod = only(rendered(charts["maintenance"]), "Deployment")["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}]
    pod = only(rendered(charts["bare-metal"]), "Deployment")["spec"]["template"]["spec"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in pod["affinity"]["nodeAffinity"]
    assert pod["affinity"]["podAntiAffinity"], "what a person adds does not replace ours"


def test_a_dry_run_registers_no_webhook_that_nobody_would_answer(helm: Helm) -> None:
    words = ("--set", "capabilities.metal=true", "--set", "settings.HOSTLER_METAL_WEBHOOKS=true")
    for dry_run, wanted in (("false", 2), ("true", 0)):
        text = helm("template", "hostler", str(CHART), *words, "--set", f"dryRun={dry_run}")
        assert len([one for one in rendered(text) if one["kind"].endswith("WebhookConfiguration")]) == wanted


def test_prometheus_finds_each_replica_once(charts: dict[str, str]) -> None:
    found = rendered(charts["everything"])
    spec = only(found, "ServiceMonitor")["spec"]
    (endpoint,) = spec["endpoints"]
    services = [
        one["metadata"]["name"]
        for one in found
        if one["kind"] == "Service"
        and spec["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
        and endpoint["port"] in [port["name"] for port in one["spec"]["ports"]]
    ]
    assert services == ["hostler"]


def test_prometheus_brings_a_token_that_reads_metrics_only(charts: dict[str, str], helm: Helm) -> None:
    found = rendered(charts["everything"])
    (endpoint,) = only(found, "ServiceMonitor")["spec"]["endpoints"]
    secret = only(found, "Secret")
    assert endpoint["authorization"]["credentials"] == {"name": secret["metadata"]["name"], "key": "token"}
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    (role,) = {
        one["roleRef"]["name"]
        for one in found
        if one["kind"].endswith("RoleBinding") and one["subjects"][0]["name"] == account
    }
    assert for_people(found)[role] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    words = ("-f", str(SETS["everything"]), "--set", "metrics.authentication=false")
    opened = rendered(helm("template", "hostler", str(CHART), *words))
    (endpoint,) = only(opened, "ServiceMonitor")["spec"]["endpoints"]
    assert ("authorization" in endpoint, told(opened)["HOSTLER_METRICS_AUTHENTICATION"]) == (False, "false")
    assert not [one for one in opened if one["kind"] == "Secret"]


def test_the_policy_limits_what_leaves_only_where_told(helm: Helm) -> None:
    on = ("--set", "networkPolicy.enabled=true", "--set", "networkPolicy.apiServer={192.0.2.0/24,2001:db8::/32}")
    spec = only(rendered(helm("template", "hostler", str(CHART), *on)), "NetworkPolicy")["spec"]
    ours = [{"ipBlock": {"cidr": "192.0.2.0/24"}}, {"ipBlock": {"cidr": "2001:db8::/32"}}]
    assert (spec["policyTypes"], "egress" in spec) == (["Ingress"], False)
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": ours}]
    told_so = (*on, "--set", "networkPolicy.egressPorts={443}")
    spec = only(rendered(helm("template", "hostler", str(CHART), *told_so)), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"][1] == {"to": ours}


def test_alerts_come_with_their_capability(charts: dict[str, str]) -> None:
    groups = only(rendered(charts["everything"]), "PrometheusRule")["spec"]["groups"]
    on = ("history", *ON["everything"])
    assert {one["name"] for one in groups} == {"hostler", *(f"hostler-{name}" for name in on)}
    assert "$labels" in json.dumps(groups), "Prometheus' templates are not Helm's"


def test_hosts_reach_the_step_api_by_an_ingress_or_a_route(charts: dict[str, str]) -> None:
    plain, openshift = (rendered(charts[name]) for name in ("reclaim", "everything"))
    for found in (plain, openshift):
        service = next(one for one in found if one["kind"] == "Service" and one["metadata"]["name"] == "hostler-hub")
        template = only(found, "Deployment")["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        (port,) = service["spec"]["ports"]
        served = {one["name"]: one["containerPort"] for one in template["spec"]["containers"][0]["ports"]}
        assert f":{served[port['targetPort']]}" == told(found)["HOSTLER_HUB_ADDRESS"]
    spec = only(plain, "Ingress")["spec"]
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    assert BASE.startswith(path["path"])
    assert path["backend"] == {"service": {"name": "hostler-hub", "port": {"name": "hub"}}}
    assert spec["tls"] == [{"hosts": [rule["host"]], "secretName": "hub-example-com"}]
    assert told(plain)["HUB_URL"] == f"https://{rule['host']}"
    assert only(openshift, "Route")["spec"] == {
        "host": "hub.apps.example.com", "to": {"kind": "Service", "name": "hostler-hub", "weight": 100},
        "port": {"targetPort": "hub"},
        "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "None"},
    }  # fmt: skip
    assert told(openshift)["HUB_URL"] == "https://hub.apps.example.com"


@pytest.mark.parametrize("name", ON)
def test_every_file_it_is_told_of_is_mounted(charts: dict[str, str], name: str) -> None:
    """Each volume is mounted, each mount has its volume, and each setting that is a path leads into one of them."""
    found = rendered(charts[name])
    pod = only(found, "Deployment")["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0].get("volumeMounts", ())}
    assert set(mounts) == {one["name"] for one in pod.get("volumes", ())}
    paths = {key: path[1] for key, value in told(found).items() if (path := re.search(r"(?:^|=)(/\S*)", value))}
    for key, value in paths.items():
        assert any(f"{value}/".startswith(f"{place}/") for place in mounts.values()), key
    used = {place for place in mounts.values() for value in paths.values() if f"{value}/".startswith(f"{place}/")}
    assert used == set(mounts.values()), "nothing is mounted for nobody"


@pytest.mark.parametrize("name", ON)
def test_it_is_valid_by_the_published_schemas(charts: dict[str, str], name: str) -> None:
    """Offline, with every field known: by the oldest Kubernetes the chart admits and by the newest there is."""
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").removesuffix("-0")
    newest = kubernetes_validate.latest_version()
    # The chart leaves out policies where the API server has none, and conditions of webhooks where it knows none.
    newer = dict.fromkeys((POLICY.kind, BINDING.kind, *WEBHOOKS), (newest,))
    for one in rendered(charts[name]):
        for version in (dict.fromkeys(FOREIGN, ()) | newer).get(one["kind"], (oldest, newest)):
            by = kubernetes_validate.validate(one, version, strict=True)
            assert version.startswith(by), "by this version, and not by another"


def test_webhooks_have_no_conditions_where_the_api_server_knows_none(helm: Helm) -> None:
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").removesuffix("-0")
    words = ("template", "hostler", str(CHART), "-f", str(SETS["bare-metal"]), "--kube-version", oldest)
    found = [one for one in rendered(helm(*words)) if one["kind"] in WEBHOOKS]
    assert len(found) == 2
    for one in found:
        kubernetes_validate.validate(one, oldest, strict=True)


def test_an_unknown_field_is_not_valid_by_them(charts: dict[str, str]) -> None:
    """That the test above can fail."""
    wrong = only(rendered(charts["default"]), "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePolicy"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=chart", "--validate=strict", "-f", "-")
# Controllers write to these too.
STATUSED = {"Deployment", "PodDisruptionBudget", "CustomResourceDefinition", "Secret", POLICY.kind}
OF_EVERY_NAMESPACE = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


def as_applied(sandbox: Sandbox, text: str) -> dict[str, Object]:
    """Of each object what no controller changes: of most their version, of others what was asked of them."""
    found = json.loads(sandbox.kubectl("get", "-f", "-", "-o", "json", input=text))["items"]
    assert found
    return {
        f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}": {
            key: one["metadata"].get(key)
            for key in ("uid", "labels", "annotations", "generation" if one["kind"] in STATUSED else "resourceVersion")
        }
        for one in found
    }


@pytest.mark.parametrize("name", ON)
def test_a_real_api_server_takes_it_once_and_gives_all_of_it_back(
    sandbox: Sandbox, namespace: str, helm: Helm, eventually: Eventually, name: str
) -> None:
    """Every field known, every value valid, its pods let in; the second time nothing changes; deleted, it is gone.

    Roles for OpenShift's namespaces and for those that metal is limited to are tried in ours; of the CRD of Fleet,
    which Helm keeps, only that it is taken.
    """
    made = rendered(helm("template", namespace, str(CHART), "-n", namespace, "-f", str(SETS[name]), *SERVED))
    found = [one for one in made if one["kind"] not in FOREIGN]
    for about in (one["metadata"] for one in found):
        place = about.get("namespace", "")
        if place.startswith("openshift-") or place in SCOPE:
            about |= {"name": f"{about['name']}-{place}", "namespace": namespace}
    wanted = only(found, "Deployment")["spec"]
    # Pods that nobody schedules are gone at once; others might be on a node that another test has switched off.
    wanted["template"]["spec"]["schedulerName"] = "nobody"
    account = wanted["template"]["spec"]["serviceAccountName"]
    if account == "made-elsewhere":
        sandbox.kubectl("create", "serviceaccount", account, "-n", namespace)
    text = yaml.safe_dump_all(found)
    ours = [one for one in found if "helm.sh/resource-policy" not in one["metadata"].get("annotations", {})]
    try:
        assert sandbox.kubectl(*APPLY, input=text).count("serverside-applied") == len(found)
        here = (only(found, "Deployment")["metadata"]["name"], "-n", namespace)

        def pods() -> int:
            return int(sandbox.get("deployment", *here).get("status", {}).get("replicas", 0))

        eventually(lambda: pods() == wanted["replicas"], 90, "no admission refuses its pods")
        before = as_applied(sandbox, text)
        sandbox.kubectl(*APPLY, input=text)
        assert as_applied(sandbox, text) == before
    finally:
        sandbox.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-f", "-", input=yaml.safe_dump_all(ours))
    if account == "made-elsewhere":
        sandbox.kubectl("delete", "serviceaccount", account, "-n", namespace)
    assert sandbox.kubectl("get", "--ignore-not-found", "-f", "-", "-o", "name", input=yaml.safe_dump_all(ours)) == ""
    assert (
        named(sandbox, "clusterrole,clusterrolebinding,role,rolebinding", "-A", "-l", f"{INSTANCE}={namespace}")
        == set()
    )
    kinds = "all,configmap,secret,serviceaccount,endpointslice,poddisruptionbudget,networkpolicy,ingress,lease"
    eventually(
        lambda: named(sandbox, kinds, "-n", namespace) == OF_EVERY_NAMESPACE,
        90, f"nothing is left: {named(sandbox, kinds, '-n', namespace)}",
    )  # fmt: skip


INSTANCE = "app.kubernetes.io/instance"
SCOPE = ("racks", "edge")  # HOSTLER_METAL_NAMESPACES of chart/ci/bare-metal-values.yaml


def named(sandbox: Sandbox, kinds: str, *words: str) -> set[str]:
    return set(sandbox.kubectl("get", kinds, *words, "-o", "name").split())


def test_a_strict_api_server_is_strict(sandbox: Sandbox, namespace: str) -> None:
    """That the test above can fail."""
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": namespace}, "dta": {}}
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict")
    with pytest.raises(Complaint, match="dta"):
        sandbox.kubectl(*words, "-f", "-", input=json.dumps(wrong))


WRONG: dict[str, tuple[list[str], str]] = {
    "no such capability": (["capabilities.metall=true"], "metall"),
    "no such setting": (["settings.DRAIN_TIMEOUT=3"], "DRAIN_TIMEOUT"),
    "a number out of bounds": (["settings.MAX_CONCURRENT_DRAINS=0"], "MAX_CONCURRENT_DRAINS"),
    "a word that is none": (["settings.HOSTLER_METAL_SELECTION=best"], "HOSTLER_METAL_SELECTION"),
    "a host without a login": (["vcenter.host=v.example.com"], "password"),
    "a secret as a setting": (["settings.VCENTER_PASSWORD=x"], "VCENTER_PASSWORD"),
    "a digest that is none": (["image.digest=sha256:abc"], "digest"),
    "the wrong type": (["replicas=two"], "replicas"),
    "a way for hosts without a name": (["capabilities.reclaim=true", "hub.ingress.enabled=true"], "/hub/ingress/host"),
    "a way to nothing": (
        ["hub.route.enabled=true", "hub.route.host=a.example"],
        "hub.route.enabled brings hosts to the step API of reclaim, which is off: set capabilities.reclaim=true",
    ),
    "TLS to a pod without a certificate": (
        [
            "capabilities.reclaim=true",
            "hub.route.enabled=true",
            "hub.route.host=a.b",
            "hub.route.termination=reencrypt",
        ],
        "has no certificate: set hub.tlsSecret, or use edge",
    ),
    "no TLS to a pod that wants it": (
        [
            "capabilities.reclaim=true",
            "hub.route.enabled=true",
            "hub.route.host=a.b",
            "hub.route.termination=edge",
            "hub.tlsSecret=x",
        ],
        "use passthrough or reencrypt, or leave hub.tlsSecret out",
    ),
    "tokens in the clear": (
        ["capabilities.reclaim=true", "hub.service.type=LoadBalancer", "hub.url=https://a.b:8090"],
        "tokens would travel in the clear: set hub.tlsSecret",
    ),
    "a hub by plain HTTP": (
        ["capabilities.reclaim=true", "hub.url=http://a.b:8090"],
        "hub.url=http://a.b:8090 is plain HTTP",
    ),
    "a hub past its own value": (
        ["capabilities.reclaim=true", "settings.HUB_URL=http://a.b:8090"],
        "HUB_URL",
    ),
    "an address that is none": (["hub.url=hub.example.com"], "/hub/url"),
    "a volume without a name": (["extraVolumes[0].emptyDir.medium=Memory"], "name"),
    "a policy that shuts the API server out": (["networkPolicy.enabled=true"], "/networkPolicy/apiServer"),
    "a network that is none": (["networkPolicy.apiServer={10.0.0.1}"], "/networkPolicy/apiServer"),
    "two that act": (
        ["settings.HOSTLER_LEADER_ELECTION=false"],
        "each of the 2 replicas would act at once: set replicas=1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_refused_by_name(helm: Helm, case: str) -> None:
    given, word = WRONG[case]
    done = helm.run("template", "hostler", str(CHART), *[part for one in given for part in ("--set", one)])
    assert done.returncode != 0
    assert word in done.stderr, done.stderr


def test_one_without_a_lease_is_gone_before_the_next_begins(helm: Helm, charts: dict[str, str]) -> None:
    words = ("--set-string", "settings.HOSTLER_LEADER_ELECTION=false", "--set", "replicas=1")
    alone = only(rendered(helm("template", "hostler", str(CHART), *words)), "Deployment")["spec"]
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})
    assert "strategy" not in only(rendered(charts["default"]), "Deployment")["spec"]


def test_the_password_leaves_no_trace_on_the_pod(helm: Helm) -> None:
    """Not as a hash either; while a changed setting is a new pod."""

    def pod(*given: str) -> Object:
        words = [part for one in given for part in ("--set", one)]
        made = helm("template", "hostler", str(CHART), "-f", str(SETS["dry-run"]), *words)
        found: Object = only(rendered(made), "Deployment")["spec"]["template"]
        return found

    assert pod("vcenter.password=one") == pod("vcenter.password=two")
    assert pod() != pod("settings.DRAIN_TIMEOUT_SECONDS=5")


@pytest.mark.parametrize("release", ["hostler", "blue"])
def test_people_reach_the_service_that_the_operator_names(helm: Helm, release: str) -> None:
    words = ("-n", "there", "--set", "settings.HOSTLER_LEASE_NAME=mine")
    found = rendered(helm("template", release, str(CHART), *words))
    service = told(found)["HOSTLER_SERVICE"]
    (ports,) = [one["spec"]["ports"] for one in found if (one["kind"], one["metadata"]["name"]) == ("Service", service)]
    assert PORT_NAME in [port["name"] for port in ports]
    made = {one["metadata"]["name"]: one for one in people_roles(service, lease="mine", service=f"{service}:http")}
    assert for_people(found) == {name: one["rules"] for name, one in made.items()}
    label = "rbac.authorization.k8s.io/aggregate-to-view"
    aggregated = [one["metadata"]["name"] for one in found if label in one["metadata"].get("labels", {})]
    assert aggregated == [f"{service}-viewer"]
    assert "aggregate-to-edit" not in yaml.safe_dump(found)
    assert "aggregate-to-admin" not in yaml.safe_dump(found)
    assert [one for one in found if (one["kind"], one["metadata"]["name"]) == ("ServiceAccount", READER)]
    without = rendered(helm("template", release, str(CHART), "--set", "rbac.people=false"))
    assert for_people(without) == {}
    assert READER not in yaml.safe_dump([one for one in without if one["kind"] != "ConfigMap"])


DOCUMENTED = [
    command
    for page in ("README.md", "docs/install.md")
    for command in re.findall(r"^helm install (.+)$", (CHART.parent / page).read_text().replace("\\\n", ""), re.M)
]


@pytest.mark.parametrize("command", DOCUMENTED)
def test_the_documented_first_minutes_are_a_dry_run_of_something(helm: Helm, command: str) -> None:
    given = [part for one in re.findall(r"--set (\S+)", command) for part in ("--set", one)]
    made = rendered(helm("template", "hostler", str(CHART), *given))
    assert (told(made)["DRY_RUN"], told(made)["HOSTLER_ONLY"]) == ("true", "maintenance")
    assert image_of(made) == f"REGISTRY/hostler:{__version__}", "of a registry, and not of everybody's"


def image_of(found: list[Object]) -> str:
    return str(only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"])


def test_the_documented_objects_of_flux_fit_the_chart(helm: Helm, tmp_path: Path) -> None:
    """The projects are not tried; that their values are the chart's, and the Secret has what it reads, is."""
    page = (CHART.parent / "docs/install.md").read_text()
    (block,) = re.findall(r"^```yaml\n(apiVersion: source.toolkit.+?)^```", page, re.MULTILINE | re.DOTALL)
    found = rendered(block)
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(only(found, "HelmRelease")["spec"]["values"]))
    made = rendered(helm("template", "hostler", str(CHART), "-f", str(values)))
    assert told(made)["HOSTLER_ONLY"] == "maintenance"
    assert image_of(made) == f"REGISTRY/hostler:{__version__}"
    target = only(found, "ExternalSecret")["spec"]["target"]
    pod = only(made, "Deployment")["spec"]["template"]["spec"]
    (login,) = [one["secret"]["secretName"] for one in pod["volumes"] if one["name"] == "vcenter"]
    assert (target["name"], set(target["template"]["data"])) == (login, {f"VCENTER_{it}" for it in READ})


READ = ("HOST", "USER", "PASSWORD")


def test_the_notes_say_what_each_capability_leaves_behind(helm: Helm) -> None:
    def notes(name: str) -> str:
        return helm("install", "hostler", str(CHART), "-n", "there", "--dry-run=client", "-f", str(SETS[name]))

    every, none = notes("everything"), notes("default")
    for capability, words in LEFT_BEHIND.items():
        for word in words:
            assert word in every, f"{capability} leaves {word}"
            assert word not in none.partition("NOTES:")[2], f"{capability} is off"


def test_it_packs_into_an_archive_without_its_tests(helm: Helm, tmp_path: Path) -> None:
    import tarfile

    helm("package", str(CHART), "-d", str(tmp_path))
    (archive,) = tmp_path.glob("hostler-*.tgz")
    with tarfile.open(archive) as read:
        names: list[Any] = read.getnames()
    assert "hostler/files/rights.yaml" in names
    assert "hostler/alerts/fleet.yaml" in names
    assert not [name for name in names if "/ci/" in name]
