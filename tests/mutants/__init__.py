"""Bugs that a user could have, each a small change of the product that a named test must find.

`table.py` lists them; `runner.py` applies one in a copy of the package and runs its test. Code that moves takes its
mutants along: a mutant whose text is gone fails and says so.
"""
