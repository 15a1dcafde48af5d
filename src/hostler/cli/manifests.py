"""`hostler manifests`: everything an operator needs in a cluster, for those without Helm."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from hostler.capabilities import ONLY
from hostler.cli import flags
from hostler.cli.printing import print_text
from hostler.install.config_map import IN_CONFIG_MAP
from hostler.maintenance.settings import GPU_NODE_LABEL
from hostler.settings.foundation import DRY_RUN, LEASE_NAME, METRICS_AUTHENTICATION, NAMESPACE
from hostler.settings.model import Settings

app = typer.Typer()
_NAME = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?"  # of an object; empty: there is none


@app.command()
@flags.takes(ONLY, NAMESPACE, DRY_RUN, METRICS_AUTHENTICATION, *IN_CONFIG_MAP, quiet=())
def manifests(
    settings: Settings,
    image: Annotated[str, typer.Option("--image", help="The image, with its registry and tag or digest.")],
    vcenter: Annotated[str, typer.Option("--vcenter-secret", help="Secret with VCENTER_HOST, _USER, _PASSWORD.")] = "",
    ca: Annotated[str, typer.Option("--vcenter-ca", help="ConfigMap with the vCenter's CA as ca.pem.")] = "",
    openshift: Annotated[bool, typer.Option("--openshift", help="With what matters only there.")] = False,
    policies: Annotated[
        bool, typer.Option("--admission-policies/--no-admission-policies", help="API servers before 1.30 have none.")
    ] = True,
) -> None:
    """Print everything an operator needs, as the chart makes it by default: CRD, account, roles, Deployment and more.

    Asks no cluster: `hostler manifests --image REGISTRY/hostler:TAG --only maintenance --vcenter-secret NAME |
    kubectl apply -f -`. Settings given by flag, environment or `--config` go into the ConfigMap it makes.
    """
    import yaml

    from hostler.install.grants import limits_of
    from hostler.install.manifests import PLAIN_LABEL, Wanted, list_manifests
    from hostler.install.roles import Account

    for flag, given, allowed, what in (
        ("--image", image, r"\S+", "an image, as in REGISTRY/hostler:TAG"),
        ("--vcenter-secret", vcenter, _NAME, "the name of a Secret"),
        ("--vcenter-ca", ca, _NAME, "the name of a ConfigMap"),
    ):
        if not re.fullmatch(allowed, given):
            raise typer.BadParameter(f'"{given}" is not {what}', param_hint=flag)
    on: tuple[str, ...] = settings[ONLY]
    if "maintenance" in on and not vcenter:
        raise typer.BadParameter(
            "maintenance needs a vCenter: name the Secret with its login", param_hint="--vcenter-secret"
        )
    if "maintenance" in on and not re.fullmatch(PLAIN_LABEL, str(settings[GPU_NODE_LABEL])):
        raise typer.BadParameter(
            "is neither KEY nor KEY=VALUE, so it cannot be told which nodes Hostler must keep off; use the chart, and "
            "give it affinity.nodeAffinity",
            param_hint="--gpu-node-label",
        )
    shown = (DRY_RUN, METRICS_AUTHENTICATION, *IN_CONFIG_MAP)
    ours = (one for one in settings if one.setting in shown and settings.given(one.setting))
    told = {one.setting.name: one.shown for one in ours if one.value != ""}
    wanted = Wanted(
        Account(settings[NAMESPACE], lease=settings[LEASE_NAME], limits=limits_of(told)), image, on,
        label=str(settings[GPU_NODE_LABEL]), settings=told, vcenter=vcenter, ca=ca, openshift=openshift,
        policies=policies,
    )  # fmt: skip
    print_text(yaml.safe_dump_all(list_manifests(wanted), sort_keys=False, width=120))
