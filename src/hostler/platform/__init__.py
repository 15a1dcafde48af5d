"""Nodes without cloud integration beside nodes with it."""
