"""kubeconfig files: reading, merging several as kubectl does, and picking a context. No network, no secrets logged."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hostler.documents import NotReadable, read_yaml
from hostler.errors import Complaint, Exit

LARGEST = 1 << 20


def wrong(sentence: str, hint: str = "") -> Complaint:
    """What is wrong with a kubeconfig, as a complaint about a setting."""
    return Complaint(f"{sentence}.", hint=hint, code=Exit.SETTING)


# -- the file's own shape


class Variable(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class Exec(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class User(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, Any] = {}
    exec: Exec | None = None
    auth_provider: dict[str, Any] | None = None


class Context(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: Cluster = Cluster()


class NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: User = User()


class NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: Context = Context()


class File(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = ""


# -- where an entry came from


@dataclass(frozen=True, slots=True)
class Origin:
    """A file of this machine, or a Secret. Only a file's owner may point to other files or have commands run."""

    label: str
    folder: Path | None = None  # None: not a file, so no paths and no commands

    def path(self, field: str, value: str) -> Path:
        """A path in the file, relative to the file."""
        if self.folder is None:
            raise wrong(
                f"{self.label} names a local file in {field}, which is not allowed there",
                "A Secret must carry the content itself (the field that ends in -data, or token).",
            )
        return self.folder / value


@dataclass(frozen=True, slots=True)
class Material:
    """Some bytes (certificate, key, token): in the kubeconfig itself, or in a file that may change."""

    field: str  # named with its origin, for messages
    data: bytes = b""
    file: Path | None = None

    def read(self) -> bytes:
        if self.file is None:
            return self.data
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise wrong(
                f"{self.field}: cannot read {self.file}: {error.strerror}", "Mend the path or the file."
            ) from error

    def stamp(self) -> tuple[int, ...]:
        """Changes when the file is replaced or rewritten; a mounted Secret is replaced by a symlink swap."""
        if self.file is None:
            return ()
        try:
            found = self.file.stat()
        except OSError:
            return (-1,)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One context with the cluster and user it names, each with its own origin."""

    context: str
    namespace: str
    cluster_name: str
    cluster: Cluster
    cluster_origin: Origin
    user_name: str
    user: User
    user_origin: Origin

    def about(self, field: str) -> str:
        """How a field of this context is named in a sentence."""
        mine = field.split(".")[0] == "cluster"
        origin = self.cluster_origin if mine else self.user_origin
        name = self.cluster_name if mine else self.user_name
        return f"{origin.label}, {'cluster' if mine else 'user'} {name!r}, field {field.split('.', 1)[1]}"

    def material(self, field: str, data: str, path: str) -> Material | None:
        """The bytes of a field given as base64 data or as a file; data wins, as with kubectl."""
        about = self.about(field)
        if data:
            try:
                return Material(f"{about}-data", base64.b64decode("".join(data.split()), validate=True))
            except (binascii.Error, ValueError) as error:
                raise wrong(f"{about}-data is not base64 ({error})", "Copy the value again, without breaks.") from error
        if path:
            origin = self.cluster_origin if field.startswith("cluster.") else self.user_origin
            return Material(about, file=origin.path(field.split(".", 1)[1], path))
        return None


# -- reading


def read(path: Path) -> File:
    """One file, or a sentence about what is wrong with it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise wrong(f"the kubeconfig {path} does not exist", "Check --kubeconfig and KUBECONFIG.") from error
    except OSError as error:
        raise wrong(f"the kubeconfig {path} cannot be read: {error.strerror}", "Check its owner and mode.") from error
    return parse(data, f"the kubeconfig {path}")


def parse(data: bytes, label: str, *, trusted: bool = True) -> File:
    """What `read` does with a file's content. Not trusted: no aliases."""
    try:
        raw = read_yaml(data, aliases=trusted)
    except NotReadable as error:
        raise wrong(f"{label} {error}", "Is it really a kubeconfig?") from error
    if not isinstance(raw, dict):
        what = "is empty" if raw is None else f"holds {type(raw).__name__}, not the fields of a kubeconfig"
        raise wrong(f"{label} {what}", "Is it really a kubeconfig?")
    try:
        return msgspec.convert(_without_nulls(raw), File)
    except (msgspec.ValidationError, RecursionError) as error:
        raise wrong(f"{label} has a field of the wrong kind: {error}", "Numbers and true/false need quotes.") from error


def _without_nulls(value: Any) -> Any:
    """`users: null` means the same as no users; Go reads it so too."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


# -- merging and choosing


class Merged:
    """Several files as one. The first file to name an entry or the current context wins, and it wins whole."""

    def __init__(self, files: Iterable[tuple[Origin, File]]) -> None:
        self.clusters: dict[str, tuple[Cluster, Origin]] = {}
        self.users: dict[str, tuple[User, Origin]] = {}
        self.contexts: dict[str, Context] = {}
        self.current = ""
        labels = []
        for origin, file in files:
            labels.append(origin.label)
            for cluster in file.clusters:
                self.clusters.setdefault(cluster.name, (cluster.cluster, origin))
            for user in file.users:
                self.users.setdefault(user.name, (user.user, origin))
            for context in file.contexts:
                self.contexts.setdefault(context.name, context.context)
            self.current = self.current or file.current_context
        self.label = " and ".join(labels)

    def choose(self, name: str | None) -> Chosen:
        """The named context, or the current one, with everything it names."""
        wanted = name or self.current
        known = f"It has {names(self.contexts)}."
        if not wanted:
            raise wrong(f"{self.label} has no current-context", f"Choose one with --context. {known}")
        context = self.contexts.get(wanted)
        if context is None:
            kind = "context" if name else "current-context"
            raise wrong(f"{self.label} has no context {wanted!r} (asked for as the {kind})", known)
        if context.cluster not in self.clusters:
            raise wrong(
                f"{self.label}: context {wanted!r} names cluster {context.cluster!r}, which is not there",
                f"The clusters are {names(self.clusters)}.",
            )
        if context.user and context.user not in self.users:
            raise wrong(
                f"{self.label}: context {wanted!r} names user {context.user!r}, which is not there",
                f"The users are {names(self.users)}.",
            )
        cluster, cluster_origin = self.clusters[context.cluster]
        user, user_origin = self.users.get(context.user, (User(), cluster_origin))
        return Chosen(
            wanted, context.namespace or "default", context.cluster, cluster, cluster_origin,
            context.user, user, user_origin,
        )  # fmt: skip


def names(known: Iterable[str], most: int = 8) -> str:
    """Names for a sentence: sorted, quoted, bounded."""
    found = sorted(known)
    if not found:
        return "none"
    rest = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(repr(name) for name in found[:most]) + rest


def files_of(variable: str) -> list[Path]:
    """The files in KUBECONFIG that exist, in order, once each; kubectl skips missing ones too."""
    listed = dict.fromkeys(Path(part) for part in variable.split(os.pathsep) if part)
    return [path for path in listed if path.exists()]
