"""One picture of every host, joined from what exists: Nodes, VMs, ESXi hosts, BareMetalHosts and Agents."""
