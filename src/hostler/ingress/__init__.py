"""Where ingress runs: OpenShift's routers, any ingress of plain Kubernetes, the decision at install time."""
