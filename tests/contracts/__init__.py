"""What others rely on: a snapshot of every contract, made from the code by `make contracts`.

`tests/unit/test_contracts.py` compares; a change is accepted by running `make contracts` and committing the difference.
"""
