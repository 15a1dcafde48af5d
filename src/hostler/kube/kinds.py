"""What kinds of object there are, and the paths they live under."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from hostler.kube.errors import NotFound


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource of the Kubernetes API, enough to build its paths and its manifests."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As RBAC and error messages spell it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of one object's subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace is not None:
            if not self.namespaced:
                raise ValueError(f"{self.kind} is not namespaced, but namespace {namespace!r} was given")
            root += f"/namespaces/{_segment('Namespace', namespace)}"
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        root += f"/{self.plural}"
        if name is not None:
            root += f"/{_segment(self.kind, name)}"
        if subresource is not None:
            root += f"/{subresource}"
        return root


def _segment(kind: str, name: str) -> str:
    """A name as one part of a path. What no object can be called is not found, and is never sent.

    The API server reads an escaped slash as a slash: the name "node-1/status" would reach another resource.
    """
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise NotFound(404, "NotFound", f'no {kind} can have the name "{name}"')
    return quote(name, safe="")


NODE = Kind("", "v1", "nodes", "Node", False)
POD = Kind("", "v1", "pods", "Pod", True)
SECRET = Kind("", "v1", "secrets", "Secret", True)
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap", True)
SERVICE = Kind("", "v1", "services", "Service", True)
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount", True)
NAMESPACE = Kind("", "v1", "namespaces", "Namespace", False)
EVENT = Kind("events.k8s.io", "v1", "events", "Event", True)
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease", True)
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
PERSISTENT_VOLUME = Kind("", "v1", "persistentvolumes", "PersistentVolume", False)
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False)
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment", True)
DAEMON_SET = Kind("apps", "v1", "daemonsets", "DaemonSet", True)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
FLEET = Kind("hostler.dev", "v1alpha1", "fleets", "Fleet", False)
PAUSE = Kind("hostler.dev", "v1alpha1", "pauses", "Pause", False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
SELF_REVIEW = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)
