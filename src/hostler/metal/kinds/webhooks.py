"""Metal's webhooks: its rules behind the server, on every replica; the certificates, by the leader; how they stand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from prometheus_client import Counter, Gauge

from hostler.apis.metal3 import GROUP
from hostler.host.conditions import Condition, Status, names
from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION
from hostler.kube.metrics import Family
from hostler.metal import settings as say
from hostler.metal.kinds import webhook_objects
from hostler.metal.kinds.conversion import convert
from hostler.metal.kinds.defaulting import fill_defaults
from hostler.metal.kinds.validation import judge
from hostler.settings.foundation import NAMESPACE
from hostler.shared import Shared
from hostler.webhooks.certificates import expiry_of, is_usable
from hostler.webhooks.client_configs import MUTATING, VALIDATING, Place, Target
from hostler.webhooks.keeper import CertificateKeeper, Setup, Standing
from hostler.webhooks.reviews import AdmissionRequest, Verdict
from hostler.webhooks.server import WebhookServer

SERVING = "MetalWebhooksServing"  # the condition of the Fleet
KEY = "certificate"
TARGETS = (
    Target(MUTATING, webhook_objects.MUTATING),
    Target(VALIDATING, webhook_objects.VALIDATING),
    *(Target(CUSTOM_RESOURCE_DEFINITION, name) for name in webhook_objects.DEFINITIONS),
)


class MetalWebhooks:
    """Made where they are switched on, and not in a dry run: that could not keep a certificate."""

    def __init__(self, shared: Shared) -> None:
        # Where a provider is at work too, what is sent to us is answered all the same: else it would be refused.
        writer, self._guard = shared.writers.of_own_objects("metal"), shared.writers.guard
        settings, registry = shared.settings, shared.metrics.registry
        address = settings[say.METAL_WEBHOOKS_ADDRESS]
        place = Place(webhook_objects.SERVICE, settings[NAMESPACE], address.port)
        setup = Setup(webhook_objects.SECRET_NAME, place, TARGETS, settings[say.METAL_WEBHOOKS_SETTLE_SECONDS])
        self.keeper = CertificateKeeper(shared.client, writer, shared.metrics, setup)
        self._held = self._guard.giving_back("metal")
        answers = Family(
            Counter(
                "hostler_webhook_requests", "Answers of the webhooks.", ("kind", "operation", "result"),
                registry=registry,
            ),
            3,
        )  # fmt: skip
        self.server = WebhookServer(
            address, self.mutate, self.validate, convert,
            kinds=frozenset(webhook_objects.KINDS.values()), setting=say.METAL_WEBHOOKS_ADDRESS.name,
            answered=lambda kind, operation, result: answers.of(kind, operation, result).inc(),
        )  # fmt: skip
        ends = Gauge(
            "hostler_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that the webhooks show ends; 0: none is shown.", registry=registry,
        )  # fmt: skip
        ends.set_function(self._ends)
        self._changed = asyncio.Event()
        self._status_changed = shared.changed
        self._leads = False
        self._said = ""

    # While the provider that we replace is at work, its own webhooks are the ones that count: all passes here.

    def mutate(self, asked: AdmissionRequest) -> Verdict:
        return Verdict(True) if self._guard.displaced("metal") else mutate(asked)

    def validate(self, asked: AdmissionRequest) -> Verdict:
        return Verdict(True) if self._guard.displaced("metal") else validate(asked)

    def led(self, held: bool) -> None:
        self._leads = held
        if held:
            self.keeper.led()

    def secret_changed(self) -> None:
        self._changed.set()

    async def keep(self, _: str) -> float | None:
        """The leader's look; another replica only serves."""
        if not self._leads:
            return None
        due = await self.keeper.keep()
        self._tell()
        return due

    async def run(self) -> None:
        """Serve for as long as the operator runs: from the first certificate on, and each newer one at once."""
        try:
            while True:
                self._changed.clear()
                pair = self.keeper.current()
                if pair is not None and self.server.use(pair) and self.server.shown is None:
                    await self.server.start()
                self._tell()
                await self._changed.wait()
        finally:
            await self.server.stop()

    def not_serving(self) -> str | None:
        """Why this replica is not ready: there is a certificate, and nothing is served yet. Requests would fail.

        Without one nobody serves, and a replica that is not ready would only hold up the next one.
        """
        if self.server.shown is not None or not is_usable(self.keeper.current(), time.time()):
            return None
        return f"the certificate in Secret {webhook_objects.SECRET_NAME} is not served yet"

    def conditions(self) -> Iterator[Condition]:
        secret = f"Secret {webhook_objects.SECRET_NAME}"
        pair, stands = self.keeper.current(), self.keeper.standings
        missing = [str(one) for one, how in stands.items() if how is Standing.MISSING]
        elsewhere = [str(one) for one, how in stands.items() if how is Standing.ELSEWHERE]
        verdict, why = self._guard.verdict("metal"), self._held() or ""
        if self._guard.displaced("metal") and verdict is not None:
            off = f"Requests pass unchanged and unchecked, because its own webhooks count. {verdict.why}"
            yield Condition(type=SERVING, status=Status.FALSE, reason="IncumbentFound", message=off)
        elif pair is None or self.server.shown is None:
            held = f" It is not made: {why}" if why else ""
            unusable = f"The certificate in {secret} cannot be used." if pair is not None else f"There is no {secret}."
            yield Condition(type=SERVING, status=Status.FALSE, reason="NoCertificate", message=unusable + held)
        elif expiry_of(pair.certificate) <= time.time():
            ended = f"The certificate in {secret} has expired, so API servers refuse it. {why}".strip()
            yield Condition(type=SERVING, status=Status.FALSE, reason="CertificateExpired", message=ended)
        elif missing or elsewhere:
            said = [f"Missing: {names(missing)}."] if missing else []
            said += [f"Not sent to {webhook_objects.SERVICE}: {names(elsewhere)}."] if elsewhere else []
            yield Condition(type=SERVING, status=Status.FALSE, reason="NotRegistered", message=" ".join(said))
        elif not stands:
            looked = "Who sends requests to the webhooks was not looked at yet."
            yield Condition(type=SERVING, status=Status.UNKNOWN, reason="NotLookedAt", message=looked)
        else:
            fine = "Defaults, validation and conversion of the Metal3 kinds are served."
            yield Condition(type=SERVING, status=Status.TRUE, reason="Serving", message=fine)

    def _ends(self) -> float:
        shown = self.server.shown
        return expiry_of(shown.certificate) if shown is not None else 0.0

    def _tell(self) -> None:
        """The Fleet's status is written again when how we stand has changed, and not with every look."""
        now = repr((self.keeper.standings, self.server.shown is not None))
        if now != self._said:
            self._said = now
            self._status_changed()


# -- the rules, as the server asks for them


def mutate(asked: AdmissionRequest) -> Verdict:
    if (unknown := _unknown(asked)) is not None:
        return unknown
    assert asked.object is not None
    filled = fill_defaults(asked.object, asked.kind.version, created=asked.operation == "CREATE")
    return Verdict(True, patched=filled if filled != asked.object else None)


def validate(asked: AdmissionRequest) -> Verdict:
    if (unknown := _unknown(asked)) is not None:
        return unknown
    assert asked.object is not None
    before = asked.old_object if asked.operation == "UPDATE" else None
    found = judge(asked.object, before, asked.kind.version)
    warnings = tuple(f"{one} (as before)" for one in found.warnings)
    if not found.wrong:
        return Verdict(True, warnings=warnings)
    wrong = "; ".join(map(str, found.wrong))
    message = f'{asked.kind.kind}.{GROUP} "{asked.name}" is invalid: {wrong}'
    return Verdict(False, message, 422, warnings)


def _unknown(asked: AdmissionRequest) -> Verdict | None:
    """What there are no rules for passes, with a warning: who sent it here should not."""
    kind = asked.kind
    known = kind.group == GROUP and kind.kind in webhook_objects.KINDS.values()
    if not known or kind.version not in webhook_objects.VERSIONS or asked.operation not in ("CREATE", "UPDATE"):
        what = f"{asked.operation} of {kind.kind} {kind.group}/{kind.version}"
        return Verdict(True, warnings=(f"Hostler has no rules for {what}: nothing was checked.",))
    if asked.object is None:
        return Verdict(False, f"The review of {kind.kind} {asked.name} has no object.", 400)
    return None
