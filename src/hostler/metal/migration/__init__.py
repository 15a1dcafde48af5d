"""From another Metal3 provider to Hostler, and back."""
