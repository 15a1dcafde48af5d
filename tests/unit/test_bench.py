"""A benchmark that is told to end takes down what it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As each of them is built: a sandbox brought up, a loop, and what takes it down again at the end.
BENCH = """
import asyncio, bench

async def run():
    try:
        print("up", flush=True)
        await asyncio.sleep(600)
    finally:
        print("taking down", flush=True)
        input()
        print("down", flush=True)

asyncio.run(run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_told_to_end_takes_its_sandbox_down_first(number: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BENCH], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "taking down\n"
        process.send_signal(number)  # somebody impatient: what is half down would stay half down
        rest, _ = process.communicate("\n", timeout=60)
    assert (rest, process.returncode) == ("down\n", 128 + number)
