"""A port that shows a certificate and says nothing more: a kubelet's, a machine config server's."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server


@contextmanager
def tls_port(certificate: bytes, private: bytes, folder: Path) -> Iterator[int]:
    """Its number, for as long as it listens."""
    cert, key = folder / "port.crt", folder / "port.key"
    cert.write_bytes(certificate)
    key.write_bytes(private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    ended = threading.Event()
    with create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)

        def answer() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                connection.settimeout(5)
                try:
                    with context.wrap_socket(connection, server_side=True) as wrapped:
                        wrapped.recv(1)
                except OSError:
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            ended.set()
            thread.join()
