"""Why something was or was not done: the registry, the read API and its client."""
