"""What a host is: facts, holds, conditions, platform class, identity, the ceiling."""
