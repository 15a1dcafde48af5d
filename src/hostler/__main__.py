"""`python -m hostler` is `hostler`."""

from hostler.cli.entry_point import main

main()
