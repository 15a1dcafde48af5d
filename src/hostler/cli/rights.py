"""`hostler rights`: what the operator may do in Kubernetes, and people with the roles made for them, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.capabilities import ONLY
from hostler.cli import flags
from hostler.cli.printing import Output, print_json, print_names, print_note, print_table, print_text
from hostler.metal.settings import METAL_NAMESPACES
from hostler.settings.foundation import CONFIG, LEASE_NAME, NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.install.roles import Account

app = typer.Typer()


@app.command()
@flags.takes(ONLY, NAMESPACE, LEASE_NAME, METAL_NAMESPACES, quiet=(CONFIG,))
def rights(
    settings: Settings,
    account: Annotated[str, typer.Option("--account", help="The operator's ServiceAccount.")] = "hostler",
    openshift: Annotated[bool, typer.Option("--openshift", help="With what matters only there.")] = False,
    people: Annotated[bool, typer.Option("--people", help="The roles for people instead of the operator's.")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print; yaml: the roles, to apply.", case_sensitive=False)
    ] = Output.TABLE,
) -> None:
    """Print the rights the operator needs for the capabilities of --only, each with its reason. Asks no cluster.

    `hostler rights --only maintenance -o yaml | kubectl apply -f -` grants them without Helm. With --people: the
    ClusterRoles viewer, operator and admin, which nobody has until you bind them.
    """
    from hostler.host.conditions import names
    from hostler.install.grants import limits_of, rights_for
    from hostler.install.roles import Account, roles

    only: tuple[str, ...] = settings[ONLY]
    found = rights_for(only)
    who = Account(
        settings[NAMESPACE],
        account,
        settings[LEASE_NAME],
        limits_of({METAL_NAMESPACES.name: METAL_NAMESPACES.show(settings[METAL_NAMESPACES])}),
    )
    if people:
        _print_people(who, output)
        return
    match output:
        case Output.YAML:
            import yaml

            print_text(yaml.safe_dump_all(roles(found, who, openshift=openshift), sort_keys=False, width=120))
        case Output.JSON:
            print_json(found)
        case Output.NAME:
            print_names(one.resource for one in found if openshift or not one.openshift)
        case _:
            rows = [
                (
                    one.resource,
                    ", ".join(one.verbs),
                    names(who.places(one)) or "cluster",
                    names(who.names(one)),
                    one.why,
                )
                for one in found
                if openshift or not one.openshift
            ]
            print_table(("on", "verbs", "where", "only", "why"), rows)


def _print_people(who: Account, output: Output) -> None:
    from hostler.host.conditions import names
    from hostler.install.people import PEOPLE, object_names, people_roles

    named = {"lease": who.lease, "service": f"{who.name}:http"}
    match output:
        case Output.YAML:
            import yaml

            print_text(yaml.safe_dump_all(people_roles(who.name, **named), sort_keys=False, width=120))
        case Output.JSON:
            print_json(PEOPLE)
        case Output.NAME:
            print_names(f"{who.name}-{role.name}" for role in PEOPLE)
        case _:
            for role in PEOPLE:
                rows = [
                    (one.resource, ", ".join(one.verbs), names(object_names(one, **named)), one.why)
                    for one in role.rights
                ]
                print_table((f"{who.name}-{role.name}", "verbs", "only", "why"), rows)
                print_note(role.equals)
