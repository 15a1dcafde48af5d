"""A real Kubernetes control plane and a vCenter on this machine, without containers.

from hostler.sandbox import Options, Sandbox
"""

from hostler.sandbox.life import PartStatus, Sandbox
from hostler.sandbox.model import Options

__all__ = ["Options", "PartStatus", "Sandbox"]
