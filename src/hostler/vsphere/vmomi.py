"""The one door to pyVmomi, the vendor's blocking client: everything untyped is behind these few names.

pyVmomi's own annotations know neither the fields of its faults nor its calls, so its modules are loaded as values.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from importlib import import_module
from typing import Any
from xml.parsers.expat import ExpatError

_pyvmomi: Any = import_module("pyVmomi")
vim: Any = _pyvmomi.vim
vmodl: Any = _pyvmomi.vmodl
PropertyCollector: Any = vmodl.query.PropertyCollector
_Adapter: Any = _pyvmomi.SoapStubAdapter

# vSphere 7 and newer, as the seed says. A newer server answers in the words of this version.
VERSION = "vim.version.v7_0"
# What a broken connection, a dead server or something in between that speaks no SOAP can raise.
BROKEN: tuple[type[Exception], ...] = (OSError, HTTPException, ExpatError)


class Unreadable(Exception):
    """The server answered with something pyVmomi does not know: a type, an enum value, a missing field."""


class Stub(_Adapter):  # type: ignore[misc]
    """One HTTP endpoint: counts every call by its name and can be cut from another thread.

    A blocked call cannot be interrupted in Python; shutting its socket down ends it at once. What a failed call leaves
    open, pyVmomi forgets: an answer not read to its end, a socket cut in mid-read. So each thread notes what it opened.
    """

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext, timeout: float, count: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(
            host=host, port=port, path="/sdk", version=VERSION, sslContext=tls, httpConnectionTimeout=timeout
        )
        self._count = count
        self._busy: set[Any] = set()
        self._mine = threading.local()  # the connection and the answer of the call this thread is in
        self._guard = threading.Lock()
        self._cut = False

    def InvokeMethod(self, mo: Any, info: Any, args: Any, outerStub: Any = None) -> Any:
        self._count(info.wsdlName)
        self._mine.opened = []
        try:
            return super().InvokeMethod(mo, info, args, outerStub)
        except BROKEN:
            raise  # a certificate that fails its check is a ValueError too
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            unknown = str(error).strip("'\"") or "something"
            raise Unreadable(f"{info.wsdlName}: pyVmomi does not understand {unknown}"[:300]) from error
        finally:
            for left in self._mine.opened:
                left.close()
            self._mine.opened = []

    def GetConnection(self) -> Any:
        connection = super().GetConnection()
        opened = self._mine.opened = [connection]

        def answer(*args: Any, **options: Any) -> HTTPResponse:
            response = HTTPResponse(*args, **options)
            opened.append(response)
            return response

        connection.response_class = answer
        with self._guard:
            self._busy = {one for one in self._busy if one.sock is not None} | {connection}
            if self._cut:
                connection.close()
                raise ConnectionAbortedError("the connection was cut by ourselves")
        return connection

    def ReturnConnection(self, connection: Any) -> None:
        with self._guard:
            self._busy.discard(connection)
        self._mine.opened = []
        super().ReturnConnection(connection)
        if self._cut:  # while this call was answered: nobody will come for it
            self.DropConnections()

    def cut(self) -> None:
        """End every call under way and every call to come."""
        with self._guard:
            self._cut, busy = True, list(self._busy)
        for connection in busy:
            raw = connection.sock
            if raw is not None:
                try:
                    raw.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it ended by itself in this moment
        self.DropConnections()


def moref(managed: Any) -> str:
    """The id of a managed object ("vm-12"); "" where there is none."""
    return "" if managed is None else str(managed._moId)


def service(stub: Stub) -> Any:
    return vim.ServiceInstance("ServiceInstance", stub)
