"""For every test: the number of examples, see `tests.sizes`."""

import tests.sizes  # noqa: F401
