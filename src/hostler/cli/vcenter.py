"""`hostler vcenter`: which certificate each vCenter is recognised by, and accepting another one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags
from hostler.cli.listing import Column, Listed, Table, View, age_of, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note, print_table
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.kube.client import Client
    from hostler.vsphere.pinned_tls import Seen
    from hostler.vsphere.pins import Entry, Pin

HELP = "See which certificate each vCenter is recognised by, and accept another one."
app = typer.Typer(no_args_is_help=True, help=HELP)
Host = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="As VCENTER_HOST or VCENTERS_FILE spells it.", show_default=False)
]
Fingerprint = Annotated[
    str, typer.Option("--sha256", metavar="FINGERPRINT", help="SHA-256 of the certificate, as vCenter itself shows it.")
]


@app.callback()
def group() -> None:
    """See which certificate each vCenter is recognised by, and accept another one."""


TRUSTED: Table[Entry] = Table(
    name=lambda entry: entry.vcenter,
    columns=(
        Column("vcenter", lambda entry: entry.vcenter, needed=True),
        Column("recognised by", lambda entry: _recognised_by(entry), needed=True, least=20, wrap=True),
        Column("accepted by", lambda entry: entry.by, order=3),
        Column("since", lambda entry: age_of(entry.since, time.time()), order=4, ages=True,
               sort=lambda entry: entry.since),
        Column("since at", lambda entry: entry.since, wide=True),
        Column("first seen sha-256", lambda entry: entry.sha256, order=1),
    ),
)  # fmt: skip


@app.command()
@flags.takes(*flags.CLUSTER)
@takes_view(TRUSTED.words)
def show(settings: Settings, view: View) -> None:
    """List what every vCenter is recognised by: its CA or its certificate, since when, and who accepted it.

    Reads Secret hostler-vcenter-trust in the operator's namespace; you need `get` on it. What a setting decides
    (VCENTER_CA_BUNDLE, VCENTER_TLS_VERIFY, VCENTER_CERTIFICATE_SHA256) is not in it.

    Examples: `hostler vcenter show`; `hostler vcenter show --operator-namespace hostler -o json`.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.safety.vcenter_trust import read_trusted
    from hostler.vsphere.pins import NotAnEntry, read_entry

    def look() -> Listed[Entry]:
        entries: list[Entry] = []
        broken: dict[str, str] = {}
        found = ask_cluster(settings, lambda client: read_trusted(client, settings[NAMESPACE]))
        for key, data in sorted(found.items()):
            try:
                entries.append(read_entry(data))
            except NotAnEntry as error:
                broken[key] = str(error)
        return Listed(
            entries,
            data=lambda shown: {"trusted": shown, "unreadable": broken},
            notes=[
                f"The entry {key} cannot be used: {why}. `hostler vcenter trust` writes it again."
                for key, why in broken.items()
            ],
            nothing="" if broken else f"Nothing is remembered of any vCenter in namespace {settings[NAMESPACE]}.",
        )

    show_list(view, look, TRUSTED)


@app.command()
@flags.takes(*flags.CLUSTER)
def trust(
    settings: Settings,
    host: Host,
    sha256: Fingerprint = "",
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Accept a vCenter's certificate, after you compared its fingerprint with the one that vCenter itself shows.

    Looks at the certificate from here and shows subject, issuer and dates; without --sha256 that is all. With it, the
    certificate must be that one. Where vCenter publishes the CA that issued it, later renewals by that CA pass too.
    Writes Secret hostler-vcenter-trust with your own rights: you need `get`, and `create` or `patch`.

    Examples: `hostler vcenter trust vcenter.example.com` only looks; `hostler vcenter trust vcenter.example.com
    --sha256 FINGERPRINT` shows it and asks; with `--yes -o json` it is for scripts.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.fingerprints import read_fingerprint
    from hostler.vsphere.endpoints import Endpoint, parse_host
    from hostler.vsphere.pins import Entry, describe_certificate, entry_key
    from hostler.vsphere.trust import make_entry

    where = parse_host(host)
    if where is None:
        raise typer.BadParameter(f'"{host}" is not a name or an address, with :PORT if not 443')
    try:
        wanted = read_fingerprint(sha256) if sha256 else ""
    except ValueError:
        raise typer.BadParameter(
            "--sha256 must be a SHA-256 fingerprint: 64 hexadecimal digits, with colons or without"
        ) from None
    name, seen = Endpoint(*where).name, _look(*where, needed=not wanted)
    if seen is not None:
        shown = describe_certificate(seen.leaf)
        lines = [("subject", shown.subject), ("issuer", shown.issuer), ("valid from", shown.not_before),
                 ("valid until", shown.not_after), ("sha-256", shown.sha256)]  # fmt: skip
        if not wanted:
            _print_certificate(name, lines, output)
            return
        if shown.sha256 != wanted:
            raise Complaint(
                f"vCenter {name} shows another certificate here: SHA-256 {shown.sha256}, not {wanted}.",
                hint="Nothing was changed. Look at vCenter itself which one is right.", code=Exit.REFUSED,
            )  # fmt: skip
        for title, text in lines:
            print_note(f"{title}: {text}")
    if not yes and not typer.confirm(f"Trust vCenter {name} by this certificate from now on?", default=False, err=True):
        raise Complaint("Nothing was changed.", code=Exit.REFUSED)
    entry = Entry(name, wanted) if seen is None else make_entry(name, seen.leaf, _pin(*where, seen))
    entry = ask_cluster(settings, lambda client: _accept(client, settings[NAMESPACE], entry_key(*where), entry))
    said = f"vCenter {name} is recognised by {_recognised_by(entry)} from now on; the operator connects soon."
    print_answer(entry, output, lambda: print_note(said), names=(name,))


async def _accept(client: Client, namespace: str, key: str, entry: Entry) -> Entry:
    import msgspec

    from hostler.kube.connection_check import check
    from hostler.safety.vcenter_trust import accept_entry

    by, since = (await check(client)).user or "a user", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    signed = msgspec.structs.replace(entry, by=by, since=since)
    await accept_entry(client, namespace, key, signed)
    return signed


def _pin(host: str, port: int, seen: Seen) -> Pin:
    from hostler.fingerprints import fingerprint_of
    from hostler.vsphere.pinned_tls import choose_pin
    from hostler.vsphere.pins import Pin

    try:
        return choose_pin(host, port, seen)
    except OSError:
        return Pin((fingerprint_of(seen.leaf),))  # gone in this moment: then only this certificate passes


def _recognised_by(entry: Entry) -> str:
    return f"its CA ({entry.issuer})" if entry.ca else "its certificate"


def _print_certificate(name: str, lines: list[tuple[str, str]], output: Output) -> None:
    if output.is_data or output is Output.NAME:
        shown = {"vcenter": name, **{title.replace(" ", "_"): text for title, text in lines}}
        print_answer(shown, output, lambda: None, names=(name,))
        return
    print_table(("", ""), lines)
    print_note(
        f"Nothing was changed. If vCenter itself shows it too: hostler vcenter trust {name} --sha256 {lines[-1][1]}"
    )


def _look(host: str, port: int, *, needed: bool) -> Seen | None:
    """What it shows from here; None where it cannot be reached from here and a fingerprint was given."""
    from hostler.vsphere.pinned_tls import look_at_server

    try:
        return look_at_server(host, port)
    except OSError as error:
        sentence = f"vCenter {host}:{port} cannot be reached from here: {error}."
        if needed:
            raise Complaint(
                sentence, hint="Give --sha256 to trust it without looking.", code=Exit.UNREACHABLE
            ) from None
        print_note(f"{sentence} Its subject and dates cannot be shown, and only this certificate will pass.")
        return None
