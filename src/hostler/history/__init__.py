"""What happened to each host: a log of what was decided, never a source of decisions."""
