"""`python -m hostler` is `hostler`."""

from hostler.cli.main import main

main()
