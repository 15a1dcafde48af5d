"""An ESXi host enters maintenance under worker VMs: their nodes are emptied, stopped and started again."""
