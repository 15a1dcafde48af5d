"""vCenter: sessions, a push watcher, bulk reads and actions. Knows nothing of Kubernetes or of any capability."""
