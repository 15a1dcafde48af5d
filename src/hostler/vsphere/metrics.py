"""What is counted about vCenters. Labels are the configured vCenters and small closed sets of words."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """One per process, on the registry it is given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._calls = Counter("hostler_vcenter_calls", "SOAP calls.", ("vcenter", "method"), registry=registry)
        self._restarts = Counter(
            "hostler_vcenter_watch_restarts", "Watchers begun again, by why.", ("vcenter", "why"), registry=registry
        )
        self._logins = Counter("hostler_vcenter_logins", "Logins by result.", ("vcenter", "result"), registry=registry)
        self._refused = Gauge(
            "hostler_vcenter_credential_refused", "1: and not tried again until it changes.", ("vcenter",),
            registry=registry,
        )  # fmt: skip
        self._certificate = Gauge(
            "hostler_vcenter_certificate_refused", "1: it shows another certificate than the trusted one.",
            ("vcenter",), registry=registry,
        )  # fmt: skip
        self._silence = Gauge(
            "hostler_vcenter_silence_seconds", "Since vCenter last said anything.", ("vcenter",), registry=registry
        )
        self._connected = Gauge(
            "hostler_vcenter_connected", "1 while its inventory is being followed.", ("vcenter",), registry=registry
        )
        self._objects = Gauge("hostler_vcenter_objects", "Objects in memory.", ("vcenter",), registry=registry)

    def called(self, vcenter: str, method: str) -> None:
        self._calls.labels(vcenter, method).inc()

    def restarted(self, vcenter: str, why: str) -> None:
        self._restarts.labels(vcenter, why).inc()

    def logged_in(self, vcenter: str, result: str) -> None:
        self._logins.labels(vcenter, result).inc()
        self._refused.labels(vcenter).set(1 if result == "refused" else 0)

    def connected(self, vcenter: str, yes: bool) -> None:
        self._connected.labels(vcenter).set(1 if yes else 0)

    def certificate_refused(self, vcenter: str, yes: bool) -> None:
        self._certificate.labels(vcenter).set(1 if yes else 0)

    def objects(self, vcenter: str, count: int) -> None:
        self._objects.labels(vcenter).set(count)

    def silence(self, vcenter: str, seconds: Callable[[], float]) -> None:
        """Asked for at every scrape: silence grows while nothing happens."""
        self._silence.labels(vcenter).set_function(seconds)
