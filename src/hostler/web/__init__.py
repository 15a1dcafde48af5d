"""The page: every host on one screen, live, in a browser. Read-only."""
