"""The command line: one file per group of commands. Data goes to stdout, everything said to people to stderr."""
