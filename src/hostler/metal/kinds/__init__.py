"""The nine kinds of the provider: their definitions, and the webhooks for them."""
