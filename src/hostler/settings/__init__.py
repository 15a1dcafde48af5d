"""Every setting of Hostler: one table, three sources (flag, environment, file), one place that resolves them."""
