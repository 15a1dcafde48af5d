"""A connection for clients that never get as far as using it."""

from __future__ import annotations

from hostler.kube.connection import Credentials


class Nowhere:
    server = "http://127.0.0.1:9"
    server_hostname = None
    proxy = None
    namespace = "default"

    async def credentials(self) -> Credentials:
        return Credentials({}, None)

    def rejected(self) -> None:
        pass
