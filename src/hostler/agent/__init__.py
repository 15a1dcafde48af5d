"""What runs on a node: a next-step runner in a privileged pod. Standard library only; stands alone; never registers."""
