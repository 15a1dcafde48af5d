"""Emptying a node: filters, order, evictions, budgets, volumes."""
