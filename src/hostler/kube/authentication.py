"""How a user of a kubeconfig proves who it is: token, token file, password, certificate, command."""

from __future__ import annotations

import base64
import time
from typing import Protocol

import structlog

from hostler.errors import Complaint
from hostler.kube.clock import Clock
from hostler.kube.exec_credentials import ExecLogin, Login, NoCredentials
from hostler.kube.kubeconfig import Chosen, Material, User, wrong

log = structlog.get_logger("hostler.login")
REREAD = 60.0


class LoginSource(Protocol):
    async def current(self) -> Login: ...
    def rejected(self) -> None: ...


class FixedLogin:
    """A token, a password, or nothing but the certificate: the same for ever."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self._login = Login(headers or {})

    async def current(self) -> Login:
        return self._login

    def rejected(self) -> None:
        pass  # there is nothing else to offer


class TokenFileLogin:
    """A token in a file that another process renews, as the kubelet does for service accounts.

    Read again when the file changes, after a minute, and after a 401. If it is gone for a moment the last one is kept.
    """

    def __init__(self, file: Material, *, clock: Clock = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._read = float("-inf")
        self._stamp: tuple[int, ...] = ()
        self._login: Login | None = None
        self._refresh()

    async def current(self) -> Login:
        if self._clock() - self._read >= REREAD or self._file.stamp() != self._stamp:
            self._refresh()
        if self._login is None:
            raise NoCredentials(f"{self._file.field}: no token there.")
        return self._login

    def rejected(self) -> None:
        self._read = float("-inf")

    def _refresh(self) -> None:
        stamp = self._file.stamp()
        try:
            token = _token(self._file)
        except Complaint as complaint:
            if self._login is None:
                raise
            log.warning("token file cannot be read now; keeping the last token", error=complaint.sentence)
        else:
            self._login = Login({"Authorization": f"Bearer {token}"})
        self._read, self._stamp = self._clock(), stamp


def _token(file: Material) -> str:
    token = file.read().decode(errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise wrong(f"{file.field}: {file.file} is empty or holds no token", "It should hold one line, the token.")
    return token


def login_of(chosen: Chosen, *, clock: Clock = time.monotonic) -> LoginSource:
    """The way of this user, with one way only: kubectl refuses two as well."""
    user = chosen.user
    if user.auth_provider is not None:
        raise wrong(
            f"{_who(chosen)} uses auth-provider {user.auth_provider.get('name', '')!r}, gone since Kubernetes 1.26",
            "Make a new kubeconfig with your provider's exec plugin.",
        )
    if (user.token or user.token_file) and user.username:
        raise wrong(f"{_who(chosen)} has both a token and a username", "Remove one of them.")
    if user.token_file:
        path = chosen.user_origin.path("tokenFile", user.token_file)
        return TokenFileLogin(Material(chosen.about("user.tokenFile"), file=path), clock=clock)
    if user.token:
        if not user.token.strip().isascii() or not user.token.strip().isprintable():
            raise wrong(f"{chosen.about('user.token')} holds characters no token has", "Copy it again.")
        return FixedLogin({"Authorization": f"Bearer {user.token.strip()}"})
    if user.username:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return FixedLogin({"Authorization": f"Basic {basic}"})
    if user.exec is not None:
        return ExecLogin(chosen, user.exec)
    return FixedLogin()


def impersonation(chosen: Chosen) -> dict[str, str]:
    """Headers for `as`. What we cannot express is refused: without it we would act with more rights than meant."""
    user = chosen.user
    if len(user.as_groups) > 1 or user.as_user_extra:
        raise wrong(f"{_who(chosen)} impersonates several groups or extra fields, which is not supported")
    if not user.as_:
        if user.as_uid or user.as_groups:
            raise wrong(f"{_who(chosen)} impersonates a group or uid, but no user", "Add the field `as`.")
        return {}
    headers = {"Impersonate-User": user.as_}
    if user.as_uid:
        headers["Impersonate-Uid"] = user.as_uid
    if user.as_groups:
        headers["Impersonate-Group"] = user.as_groups[0]
    return headers


def certificate_of(chosen: Chosen) -> tuple[Material, Material] | None:
    user: User = chosen.user
    certificate = chosen.material("user.client-certificate", user.client_certificate_data, user.client_certificate)
    key = chosen.material("user.client-key", user.client_key_data, user.client_key)
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise wrong(f"{_who(chosen)} has no {missing}; a certificate needs its key and the other way round")
    return certificate, key


def _who(chosen: Chosen) -> str:
    return f"{chosen.user_origin.label}: user {chosen.user_name!r}"
