"""`hostler join ignition`, `serve`, `cloud-init` and `guide`: what a new machine boots with."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from hostler.cli import flags
from hostler.cli.printing import print_note, print_text
from hostler.errors import Complaint, Exit
from hostler.settings.model import Settings
from hostler.settings.readers import ADDRESS, LABEL, Address

if TYPE_CHECKING:
    from hostler.join.boot import Pointer, Without
    from hostler.kube.client import Client

SPAN = flags.duration(1, 7 * 86400)
RootCa = Annotated[
    Path | None,
    typer.Option("--root-ca", metavar="FILE", help="Root CA of the machine config server. Unset: the cluster's own."),
]
Server = Annotated[
    str, typer.Option("--server", metavar="HOST:PORT", help="The machine config server; with --root-ca only.")
]
Check = Annotated[bool, typer.Option("--check/--no-check", help="Check that it serves a certificate of that CA.")]
CloudProvider = Annotated[
    bool,
    typer.Option(
        "--cloud-provider/--no-cloud-provider",
        help="Keep the kubelet's cloud provider: for a VM of the cluster's cloud. Without: for any other machine.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="The disk to install to.")]
Span = Annotated[float, typer.Option("--for", parser=SPAN, metavar="DURATION", help="For how long: 30m, 1h30m.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands to `hostler join`."""
    for command in (ignition, serve, guide):
        app.command()(command)
    app.command("cloud-init")(cloud_init)


@flags.takes(*flags.CLUSTER)
def ignition(
    settings: Settings,
    root_ca: RootCa = None,
    server: Server = "",
    check: Check = True,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there, for nobody else.")] = None,
    device: Device = "/dev/sdX",
    integrated: CloudProvider = False,
) -> None:
    """Print or write the Ignition config of a new worker, and the line that installs with it."""
    from hostler.join import ignition as made

    content, note = _content(settings, root_ca, server, check, integrated)
    if out is None:
        print_text(content.decode())
    else:
        write_secret(out, content)
    file = str(out) if out is not None else "worker.ign"
    print_note(f"On the new machine, booted from the live image: {made.installer_line(device, file=file)}")
    print_note(note)


@flags.takes(*flags.CLUSTER)
def serve(
    settings: Settings,
    root_ca: RootCa = None,
    server: Server = "",
    check: Check = True,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where; port 0: any. Unset: the address given as --name."),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", help="How the new machine reaches this one. Unset: HOST of --listen.")
    ] = "",
    plain: Annotated[
        bool, typer.Option("--plain-http", help="Serve without TLS: the hash proves the content, anyone can read it.")
    ] = False,
    span: Span = 3600.0,
    times: Annotated[int, typer.Option("--times", min=0, help="How often it may be fetched; 0: any number.")] = 0,
    cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, for HTTPS.")] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")] = None,
    device: Device = "/dev/sdX",
    integrated: CloudProvider = False,
) -> None:
    """Serve the Ignition config for a while and print the line to install with.

    Over HTTPS with --tls-cert and --tls-key, or with --plain-http and its hash.
    """
    import asyncio

    from hostler.join import ignition as made
    from hostler.join.boot import Terms
    from hostler.join.boot import serve as run

    at = _where_to_listen(listen, name)
    shown = _in_url(name or at.host)
    terms = Terms(span, times)
    tls = _tls(cert, key)
    if tls is None and not plain:
        raise Complaint(
            "There is no certificate to serve with.",
            hint="Give --tls-cert and --tls-key, or --plain-http: then the printed line checks the hash.",
            code=Exit.USAGE,
        )
    if tls is not None and plain:
        raise Complaint("--plain-http and --tls-cert contradict each other.", code=Exit.USAGE)
    content, note = _content(settings, root_ca, server, check, integrated)

    def ready(path: str) -> None:
        url = f"{'https' if tls else 'http'}://{shown}{path}"
        print_text(made.installer_line(device, url=url, hash=made.digest(content)))
        print_note(f"Serving for {span}{f', {times} times at most' if times else ''}. {note}")

    served = asyncio.run(
        run(content, at.host, at.port, terms, tls, ready, lambda who: print_note(f"Fetched by {who}."))
    )
    print_note(f"Ended; it was fetched {served} times.")


@flags.takes(*flags.CLUSTER)
def cloud_init(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of host and node.", show_default=False)],
    span: Span = 7200.0,
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="The API server. Unset: as the kubeconfig says.")
    ] = "",
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="The cluster's CA. Unset: its own.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A node label.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there, for nobody else.")] = None,
    expected: Annotated[bool, typer.Option("--expect/--no-expect", help="Expect the host for as long.")] = True,
) -> None:
    """Make a bootstrap token that expires, and the cloud-init by which one host joins plain Kubernetes with kubeadm."""
    from hostler.cli.cluster import ask_cluster
    from hostler.join import boot, commands, kubeadm

    node_name(name)
    labels = dict(_label(text) for text in label or ())
    at = _host_port(server) if server else ""
    if out is not None and out.exists():
        raise _there_already(out)  # before a token is made for nobody
    given = ca.read_bytes() if ca is not None and ca.is_file() else None
    if ca is not None and given is None:
        raise Complaint(f"--ca {ca} is no file.", code=Exit.SETTING)

    async def work(client: Client) -> tuple[kubeadm.Token, str, str]:
        pem = given if given is not None else await boot.cluster_ca(client)
        try:
            pin = kubeadm.ca_pin(pem)
        except ValueError as error:
            raise Complaint(f"The CA cannot be used: {error}.", hint="Give one CA with --ca.") from error
        address = at or _endpoint(client.connection.server)
        if expected:
            await commands.expect(client, name, (), span)
        return await boot.make_token(client, name, span), pin, address

    token, pin, address = ask_cluster(settings, work)
    content = kubeadm.cloud_init(name, kubeadm.join_configuration(name, address, token, (pin,), labels))
    if out is None:
        print_text(content)
    else:
        write_secret(out, content.encode())
    print_note(f"The token {token.id} ends in {span}; whoever has this file may ask to become a node until then.")


@flags.takes(*flags.CLUSTER)
def guide(settings: Settings, name: Annotated[str, typer.Argument(metavar="NAME")] = "worker-new") -> None:
    """Say, step by step and for this cluster, how a machine without cloud integration becomes a node."""
    from hostler.cli.cluster import ask_cluster
    from hostler.join.boot import version_of

    version = ask_cluster(settings, version_of)
    print_text("\n".join(_openshift(version, name) if version else _plain(name)))


def _openshift(version: str, name: str) -> list[str]:
    minor = ".".join(version.split(".")[:2])
    return [
        f"1. The cluster runs OpenShift {version}.",
        f"2. Get the RHCOS live image of {minor}: `openshift-install coreos print-stream-json` of {version} names it",
        "   under architectures.x86_64.artifacts.metal.formats.iso.disk.location, with its sha256.",
        "3. Make the config: `hostler join serve --plain-http --name ADDRESS-OF-THIS-MACHINE`",
        "   (or `hostler join ignition --out FILE`).",
        "4. Boot the new machine from the live image.",
        "5. There, run the line that step 3 printed (coreos-installer install ... --platform=metal).",
        f"6. Say that it is expected: `hostler join expect {name} --for 2h`; then reboot it.",
        "7. Its two certificate requests are approved by `hostler run --only join`; by hand: `hostler join csrs`,",
        "   `hostler join approve CSR` (first the client's, then the serving one).",
        f"Then `hostler explain node/{name}`; keep cloud-only DaemonSets off it with `hostler run --only platform`.",
    ]


def _plain(name: str) -> list[str]:
    return [
        "1. This is plain Kubernetes: no OpenShift answers here.",
        "2. Get a cloud image with a container runtime, kubelet and kubeadm of the cluster's version.",
        f"3. Make the config: `hostler join cloud-init {name} --for 2h --out user-data`; it expects the host as well.",
        "4. Boot the machine with that user data (a cloud-init seed disk, or your provisioner).",
        "5. cloud-init runs kubeadm join with a token that ends by itself and the CA pinned.",
        "6. Nothing else is to be installed by hand.",
        "7. Its certificate requests are approved by `hostler run --only join`; by hand: `hostler join csrs`,",
        "   `hostler join approve CSR`.",
        "Where kubeadm made the ClusterRoleBinding kubeadm:node-autoapprove-bootstrap, the cluster itself approves",
        "whoever has a token, expected or not. Delete it to have only expected hosts let in.",
    ]


def _content(settings: Settings, root_ca: Path | None, server: str, check: bool, integrated: bool) -> tuple[bytes, str]:
    """The config, and a sentence on the kubelet's cloud provider."""
    import asyncio

    from hostler.cli.cluster import ask_cluster
    from hostler.join import boot
    from hostler.join import ignition as made

    async def ask(client: Client) -> tuple[Pointer, Without]:
        found = await boot.pointer_of(client)
        return found, without if integrated else await boot.without_cloud_provider(client)

    without = boot.Without("", "The kubelet waits for the cluster's cloud provider, as its unit says.")
    pointer: Pointer
    if root_ca is not None:
        if not server:
            raise Complaint("--root-ca needs --server HOST:PORT too.", code=Exit.USAGE)
        pointer = boot.Pointer(_host_port(server), _pem(root_ca), str(root_ca))
        if not integrated:
            without = boot.Without("", f"No cluster was asked for its kubelet's unit; {boot.BY_TAINT}.")
    elif server:
        raise Complaint("--server needs --root-ca FILE too: the CA is never made up.", code=Exit.USAGE)
    else:
        pointer, without = ask_cluster(settings, ask)
    if check:
        asyncio.run(boot.verify(pointer))
    return made.written(made.pointer(pointer.server, pointer.root_ca, drop_in=without.drop_in)), without.note


def _where_to_listen(listen: str, name: str) -> Address:
    """Only the address that the new machine uses, unless another is given: not every network needs to see it."""
    try:
        at = ADDRESS.read(listen or (f"[{name.strip('[]')}]:0" if ":" in name else f"{name}:0"))
    except ValueError:
        if listen:
            raise typer.BadParameter(f'"{listen}" is not HOST:PORT') from None
        at = Address("", 0)
    if not name and at.host in ("", "0.0.0.0", "::"):  # nosec B104 # compared, not bound
        raise Complaint(
            f"No machine can fetch anything from {at.host or 'an empty address'}.",
            hint="Say how the new one reaches this one: --name ADDRESS, or --listen ADDRESS:PORT.",
            code=Exit.USAGE,
        )
    if not listen and not _is_address(at.host):
        raise Complaint(
            f'--name "{name}" is not an address of this machine to listen on.', hint="Say where: --listen HOST:PORT.",
            code=Exit.USAGE,
        )  # fmt: skip
    return at


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host_port(text: str) -> str:
    """As a URL takes it: an address of IPv6 in brackets."""
    try:
        read = ADDRESS.read(text)
    except ValueError:
        read = Address("", 0)
    if not read.host or not read.port or "%" in read.host:
        raise typer.BadParameter(f'"{text}" is not HOST:PORT')
    return f"[{read.host}]:{read.port}" if ":" in read.host else f"{read.host}:{read.port}"


def _in_url(text: str) -> str:
    """A name or an address as a URL takes it, without a port."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        return f"[{bare}]" if ipaddress.ip_address(bare).version == 6 else bare
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", text):
            raise typer.BadParameter(f'"{text}" is neither a name nor an address') from None
    return text


def _pem(path: Path) -> bytes:
    from hostler.join.ignition import unfit

    try:
        content = path.read_bytes()
    except OSError as error:
        raise Complaint(f"--root-ca {path} cannot be read: {error.strerror}.", code=Exit.SETTING) from error
    if wrong := unfit(content):
        raise Complaint(f"--root-ca {path} {wrong[0]}.", code=Exit.SETTING)
    return content


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise Complaint("--tls-cert and --tls-key belong together.", code=Exit.USAGE)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")  # else OpenSSL asks on the terminal for one
    except (OSError, ssl.SSLError) as error:
        raise Complaint(f"The certificate {cert} with {key} cannot be used: {error}.", code=Exit.SETTING) from error
    return context


def _label(text: str) -> tuple[str, str]:
    from hostler.join.kubeadm import reserved

    try:
        key, equals, value = LABEL.read(text).partition("=")
    except ValueError:
        key = equals = value = ""
    if not equals:
        raise typer.BadParameter(f'"{text}" is no label: KEY=VALUE')
    if reserved(key):
        raise Complaint(
            f"No kubelet may give itself the label {key}; with it, it would not start, or not become a node.",
            hint=f"Once the node is there: `kubectl label node NAME {text}`.",
            code=Exit.USAGE,
        )
    return key, value


def _endpoint(url: str) -> str:
    """HOST:PORT at which a new machine reaches the API server, from how we reach it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        raise Complaint(
            f"The kubeconfig reaches the API server at {parts.netloc}: on the new machine that is the machine itself.",
            hint="Say where the API server is: --server HOST:PORT.",
            code=Exit.USAGE,
        )
    return _host_port(f"[{host}]:{parts.port or 443}" if ":" in host else f"{host}:{parts.port or 443}")


def node_name(text: str) -> str:
    """A name a node can have; anything else is a mistake on the command line."""
    from hostler.join.kubelet_request import NODE_NAME

    if not NODE_NAME.fullmatch(text):
        raise typer.BadParameter(f'"{text}" can be no node\'s name: lower-case letters, digits, dashes and dots')
    return text


def _there_already(path: Path) -> Complaint:
    return Complaint(f"{path} is there already; nothing was written.", code=Exit.REFUSED)


def write_secret(path: Path, content: bytes) -> None:
    """Made for nobody else to read; a file that is there is not overwritten."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _there_already(path) from None
    except OSError as error:
        raise Complaint(f"{path} cannot be written: {error.strerror}.", code=Exit.REFUSED) from error
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    print_text(str(path))
