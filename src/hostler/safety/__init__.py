"""What may write now: switches, pauses, incumbents, and whom we trust."""
