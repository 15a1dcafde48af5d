"""The boot loaders of a host: a module per dialect behind one interface (`loader.py`), a row each in `detection.py`."""
