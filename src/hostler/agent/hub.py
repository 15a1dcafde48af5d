"""The hub's step API, as the agent calls it."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostler.agent.fetch import TIMEOUT, Web
from hostler.agent.refusal import Reason, Refusal, discreet

BASE = "/api/assisted-install"
ANSWER_LIMIT = 1 << 20


@dataclass(frozen=True)
class Step:
    type: str
    id: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Instructions:
    """What to do now, when to ask again, and whether to ask again at all."""

    steps: tuple[Step, ...]
    ask_again: float
    ends: bool


class NoAnswer(Exception):
    """The hub could not be asked, or said no. The sentence says which; asking again later is right either way."""

    def __init__(self, sentence: str) -> None:
        super().__init__(discreet(sentence))


class Hub:
    def __init__(self, web: Web, url: str, infra_env: str, host: str, token_file: str) -> None:
        self._web = web
        self._url = f"{url.rstrip('/')}{BASE}/v2/infra-envs/{infra_env}/hosts/{host}/instructions"
        self._token_file = Path(token_file)

    def instructions(self, seconds: float = TIMEOUT) -> Instructions:
        answer = self._call("GET", None, seconds)
        try:
            read = json.loads(answer)
            steps = tuple(
                Step(str(step["step_type"]), str(step["step_id"]), _arguments(step))
                for step in read["instructions"] or ()
            )
            again = min(3600.0, max(0.05, float(read["next_instruction_seconds"])))
            return Instructions(steps, again, read["post_step_action"] == "exit")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NoAnswer(f"the hub's answer cannot be read ({type(error).__name__}: {error})") from error

    def report(self, step: Step, exit_code: int, output: str, error: str) -> None:
        body = {"step_type": step.type, "step_id": step.id, "exit_code": exit_code, "output": output, "error": error}
        self._call("POST", json.dumps(body).encode())

    def _call(self, method: str, body: bytes | None, seconds: float = TIMEOUT) -> bytes:
        """One call; the token is read each time, since the hub may have renewed it."""
        try:
            token = read_token(self._token_file)
        except OSError as error:
            raise NoAnswer(f"the token {self._token_file} cannot be read: {error.strerror}") from error
        headers = {"X-Secret-Key": token, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self._url, data=body, headers=headers, method=method)
        try:
            with self._web.open(request, seconds) as answer:
                return answer.read(ANSWER_LIMIT)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoAnswer(f"the hub answered HTTP {error.code}") from error
        except Refusal as error:  # it sends on to an address without TLS
            raise NoAnswer(error.sentence) from error
        except (http.client.HTTPException, urllib.error.URLError, OSError) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise NoAnswer(
                    f"the hub's certificate is not trusted ({cause.verify_message}); check HUB_CA"
                ) from error
            raise NoAnswer(f"the hub cannot be reached: {cause or type(cause).__name__}") from error


def read_token(file: Path) -> str:
    return file.read_text().strip()


def _arguments(instruction: dict[str, Any]) -> dict[str, Any]:
    args = instruction.get("args") or ["{}"]
    read = json.loads(args[0])
    if not isinstance(read, dict):
        raise Refusal(Reason.BAD_ARGUMENTS, "The arguments of the step are not an object.")
    return read
