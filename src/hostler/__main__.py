"""`python -m hostler` is `hostler`."""

from hostler.cli.start import main

main()
