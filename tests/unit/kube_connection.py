"""How a test reaches an HTTP server of its own with our client."""

from __future__ import annotations

from hostler.kube.connection import Credentials


class Here:
    """A connection to our own server, without credentials."""

    server_hostname = proxy = None
    namespace = "default"

    def __init__(self, server: str) -> None:
        self.server = server

    async def credentials(self) -> Credentials:
        return Credentials({}, None)

    def rejected(self) -> None:
        pass
