"""For every test: the number of examples (see `tests.sizes`), and Ctrl-C as at a terminal.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import signal

import tests.sizes  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
