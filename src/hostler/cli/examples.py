"""What a help page shows at its end: command lines that people type. Some commands tell theirs in their own text."""

from __future__ import annotations

import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": ("hostler run --dry-run", "hostler run --only maintenance,join --max-unavailable 10%"),
    "provider": ("hostler provider", "hostler provider --namespace racks,edge --watch-filter blue"),
    "config": ("hostler config", "hostler config --running", "hostler config --config settings.yaml -o json"),
    "version": ("hostler version", "hostler version --server -o json"),
    "status": ("hostler status", "hostler status --operator http://127.0.0.1:8080", "hostler status -o json"),
    "explain": (
        "hostler explain node/worker-3",
        "hostler explain bmh/host-1 -n rack-a",
        "hostler explain agent/inventory/5b1c -o json",
    ),
    "plan": ("hostler plan node/worker-3", "hostler plan esxi/esx1.example.org"),
    "doctor": ("hostler doctor", "hostler doctor --context prod -o json"),
    "bundle": ("hostler bundle", "hostler bundle --partial --file ticket-4711.tar.gz"),
    "pause": ('hostler pause --why "storage is on fire"', 'hostler pause --why "storage is on fire" --wait 30s'),
    "resume": ("hostler resume", "hostler resume --all"),
    "hold": (
        'hostler hold worker-7 --why "replacing a fan"',
        'hostler hold -l pool=gpu --why "driver update" --dry-run',
        'hostler hold --esxi esx1.example.org --why "new firmware"',
    ),
    "release": (
        "hostler release worker-7",
        "hostler release worker-7 --holder ada",
        "hostler release --rack r7 --all",
    ),
    "drain": (
        "hostler drain worker-7 --dry-run",
        'hostler drain worker-7 worker-8 --why "new disks" --timeout 30m',
        "hostler drain --rack r7",
    ),
    "maintenance status": (
        "hostler maintenance status",
        "hostler maintenance status --watch",
        "hostler maintenance status -o wide",
    ),
    "maintenance plan": (
        "hostler maintenance plan esx1.example.org",
        "hostler maintenance plan esx1.example.org -o json",
    ),
    "ingress status": (
        "hostler ingress status",
        "hostler ingress status --ingress-workloads daemonset/ingress-nginx/controller",
    ),
    "metal hosts": ("hostler metal hosts -n rack-a -o wide", "hostler metal hosts -A --sort-by last-used"),
    "metal takeover": ("hostler metal takeover --check", "hostler metal takeover --check -o json"),
    "metal capacity": ("hostler metal capacity workers -n team-a", "hostler metal capacity team-a/workers -o json"),
    "install plan": ("hostler install plan install-config.yaml", "hostler install plan install-config.yaml -o json"),
    "install manifests": (
        "hostler install manifests install-config.yaml --dir cluster --root-ca root-ca.crt",
        "hostler install manifests --help",
    ),
    "platform status": ("hostler platform status", "hostler platform status -n kube-system -o wide"),
    "platform withdraw": ("hostler platform withdraw", "hostler platform withdraw --yes"),
    "platform remove-driver": (
        "hostler platform remove-driver csi.vsphere.vmware.com",
        "hostler platform remove-driver csi.vsphere.vmware.com --yes",
    ),
    "join csrs": ("hostler join csrs --watch", "hostler join csrs --sort-by age -o json"),
    "join expect": (
        "hostler join expect worker-9 --for 90m",
        "hostler join expect worker-9 --address 192.0.2.9",
        "hostler join expect worker-9 --remove",
    ),
    "join approve": ("hostler join approve csr-4x7kq", "hostler join approve csr-4x7kq --yes"),
    "join ignition": ("hostler join ignition", "hostler join ignition --out worker.ign --device /dev/nvme0n1"),
    "join serve": (
        "hostler join serve --listen 192.0.2.1:8443 --name worker-9",
        "hostler join serve --listen 192.0.2.1:8443 --for 30m --times 3",
    ),
    "join cloud-init": (
        "hostler join cloud-init worker-9",
        "hostler join cloud-init worker-9 --label pool=gpu --out worker-9.yaml",
    ),
    "join guide": ("hostler join guide", "hostler join guide worker-9"),
    "reclaim status": (
        "hostler reclaim status -A",
        "hostler reclaim status inventory/5b1c",
        "hostler reclaim status -n inventory --watch",
    ),
    "reclaim start": ("hostler reclaim start inventory/5b1c", "hostler reclaim start inventory/5b1c --yes"),
    "reclaim cancel": ("hostler reclaim cancel inventory/5b1c", "hostler reclaim cancel inventory/5b1c -o json"),
    "reclaim retry": ("hostler reclaim retry inventory/5b1c", "hostler reclaim retry inventory/5b1c -o json"),
    "reclaim token": ("hostler reclaim token inventory/env", "hostler reclaim token inventory/env --for 7d"),
    "rights": (
        "hostler rights --only maintenance",
        "hostler rights --only maintenance -o yaml | kubectl apply -f -",
        "hostler rights --people",
    ),
    "manifests": (
        "hostler manifests --image registry.example.org/hostler:1.0 | kubectl apply -f -",
        "hostler manifests --image registry.example.org/hostler:1.0 --only join,reclaim",
    ),
    "crds": ("hostler crds | kubectl apply -f -", "hostler crds --apply"),
    "agent": ("hostler agent", "hostler agent --write agent.py"),
    "demo": ("hostler demo", "hostler demo --once"),
    "sandbox up": ("hostler sandbox up", "hostler sandbox up --fleet mixed --with capi --dir sandbox"),
    "sandbox status": ("hostler sandbox status", "hostler sandbox status --dir sandbox"),
    "sandbox down": ("hostler sandbox down", "hostler sandbox down --keep"),
    "sandbox build": ("hostler sandbox build", "hostler sandbox build --with capi"),
    "sandbox kubectl": ("hostler sandbox kubectl get nodes", "hostler sandbox kubectl describe node gpu-0"),
    "sandbox clusterctl": (
        "hostler sandbox clusterctl describe cluster a",
        "hostler sandbox clusterctl get kubeconfig a",
    ),
    "sandbox workload": (
        "hostler sandbox workload a --from sandbox",
        "hostler sandbox workload a --from sandbox --dir workload",
    ),
    "sandbox power": ("hostler sandbox power off gpu-0", "hostler sandbox power off gpu-0 --soft"),
    "sandbox maintenance": ("hostler sandbox maintenance enter esx1", "hostler sandbox maintenance exit esx1"),
    "sandbox crash": ("hostler sandbox crash esx1", "hostler sandbox crash esx1 --ha"),
    "sandbox recover": ("hostler sandbox recover esx1", "hostler sandbox recover esx1 --power-on"),
    "sandbox fault": (
        "hostler sandbox fault PowerOnVM_Task InsufficientResourcesFault --vm gpu-0",
        "hostler sandbox fault '*' --delay 10s --times -1",
        "hostler sandbox fault --clear",
    ),
}


def add_examples(app: typer.Typer, path: str = "") -> None:
    """Put its examples at the end of every command's help page; one that tells them in its own text has none here."""
    for command in app.registered_commands:
        callback = command.callback.__name__ if command.callback is not None else ""
        name = command.name or callback.replace("_", "-")
        found = EXAMPLES.get(f"{path} {name}".strip())
        if found is not None:
            command.epilog = "\n\n".join(("Examples:", *found))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            name = group.name if isinstance(group.name, str) else ""
            add_examples(group.typer_instance, f"{path} {name}".strip())
