"""What detect-secrets takes for a secret is no longer there after our redaction: a second judge of our patterns."""

from __future__ import annotations

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.scan import scan_line
from detect_secrets.settings import default_settings

from hostler.cli.redact import redact_text

MIXED = "a1B2c3D4e5F6g7H8i9J0"
# Guesses of any text with many different characters, and addresses, which a bundle is to show.
NO_SECRETS = {"Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)"}
# Nobody's, each put together here so that no scanner takes this file for a leak.
SAMPLES = {
    "Artifactory Credentials": f"artif-key:{'AKC' + MIXED[:12]}",
    "AWS Access Key": "AKIA" + "ZZZQWERTYUIOPASD",
    "Azure Storage Account access key": f"AccountKey={'a1B2' * 21}aa==",
    "Basic Auth Credentials": "https://ada:" + "hunter22@vc.example/sdk",
    "Cloudant Credentials": f'cloudant_password="{"0123456789abcdef" * 4}"',
    "Discord Bot Token": "MTk4NjIyNDgzNDcxOTI1MjQ4" + ".Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    "GitHub Token": "ghp_" + "a1B2" * 9,
    "GitLab Token": "glpat-" + MIXED,
    "IBM Cloud IAM Key": f'ibm_cloud_api_key="{"a1B2c3D4e5F6" * 3}a1B2c3D4"',
    "IBM COS HMAC Credentials": f'cos_hmac_secret_access_key="{"0123456789abcdef" * 3}"',
    "JSON Web Token": "eyJhbGciOiJSUzI1NiJ9" + ".eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl",
    "Mailchimp Access Key": "0123456789abcdef" * 2 + "-us12",
    "NPM tokens": "//registry.npmjs.org/:_authToken=" + "npm_" + "a1B2" * 9,
    "OpenAI Token": f"sk-{MIXED}T3BlbkFJ{MIXED}",
    "Private Key": "-----BEGIN EC" + " PRIVATE KEY-----",
    "PyPI Token": "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 20,
    "Secret Keyword": 'password = "hunter22"',
    "SendGrid API Key": f"SG.{'a' * 22}.{'b' * 43}",
    "Slack Token": "xox" + "b-123456789012-1234567890123-abcdefghijABCDEFGHIJabcd",
    "SoftLayer Credentials": f'softlayer_api_key="{"0a" * 32}"',
    "Square OAuth Secret": "sq0csp-" + "a1B2c3D4e5" * 4 + "abc",
    "Stripe Access Key": "sk_live_" + MIXED + "a1B2",
    "Telegram Bot Token": "110201543:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
    "Twilio API Key": "SK" + "0a" * 16,
}


def secrets_in(text: str) -> set[str]:
    with default_settings():
        return {found.type for line in text.splitlines() for found in scan_line(line)} - NO_SECRETS


@pytest.mark.parametrize("text", ["{}", "event: cannot pull: {} was refused"], ids=["bare", "log"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_nothing_is_left_that_detect_secrets_finds(kind: str, text: str) -> None:
    said = text.format(SAMPLES[kind])
    assert kind in secrets_in(said), "the judge knows it"
    assert secrets_in(redact_text(said)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "pod kube-system/gluster-storage-controller-0-abcdef moved",
        "node sk-worker-with-a-long-name-17.example.com is Ready",
        "deployment pypi-mirror-of-the-data-centre scaled",
        f"image registry.example.com/npm/APACHE_LOG_DIR@sha256:{'0123456789abcdef' * 4}",
    ],
)
def test_names_that_only_begin_like_a_token_stay(text: str) -> None:
    assert redact_text(text) == text


def test_every_detector_has_a_sample() -> None:
    assert set(get_mapping_from_secret_type_to_class()) - NO_SECRETS == set(SAMPLES)
