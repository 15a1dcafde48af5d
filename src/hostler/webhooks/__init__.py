"""Webhooks of the API server: reviews, the server that answers them, its certificates. Knows no kind of object."""
