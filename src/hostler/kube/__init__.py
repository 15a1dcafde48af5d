"""The API server: identity, client, watch caches, queue, lease, events, write budget, metrics."""
