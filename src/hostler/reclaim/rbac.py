"""What reclaim may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from hostler.install.rights import FOLLOW, OWN, Right

_AGENTS = "agent-install.openshift.io"

RIGHTS: tuple[Right, ...] = (
    Right(f"agents.{_AGENTS}", ("get", *FOLLOW, "create", "patch"), "Hosts register, are bound and returned."),
    Right(f"agents.{_AGENTS}/status", ("patch",), "How far each has come."),
    Right(f"infraenvs.{_AGENTS}", ("get", *FOLLOW), "What a host boots into."),
    Right("clusterdeployments.hive.openshift.io", ("get",), "The old cluster of a host, and its kubeconfig."),
    Right("secrets", ("get",), "Kubeconfigs of old clusters and pull secrets, which their objects name."),
    Right("secrets", ("create",), "The key that signs the tokens of hosts.", OWN),
    Right("secrets", FOLLOW, "That key is read by every replica.", OWN, ("hostler-reclaim-key",)),
    Right("pods", ("get",), "The image of our own pod is the agent's, unless AGENT_IMAGE names another.", OWN),
)  # fmt: skip
