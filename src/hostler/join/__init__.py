"""How new nodes come in: which certificate requests are approved, and what a new machine boots with."""
