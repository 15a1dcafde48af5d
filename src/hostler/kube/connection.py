"""Where an API server is and how to be let in; `kube.config` makes such connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are for one request. `ssl` is None for plain HTTP."""

    headers: Mapping[str, str]
    ssl: ssl.SSLContext | None


class Connection(Protocol):
    """Where an API server is and how to be let in; `kube.config` makes them."""

    @property
    def server(self) -> str: ...
    @property
    def server_hostname(self) -> str | None: ...
    @property
    def proxy(self) -> str | None: ...
    @property
    def namespace(self) -> str: ...

    async def credentials(self) -> Credentials: ...

    def rejected(self) -> None:
        """The server answered 401: forget what is cached, so that the next call reads it afresh."""
