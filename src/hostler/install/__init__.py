"""What an installation consists of: CRDs, rights, roles, manifests."""
