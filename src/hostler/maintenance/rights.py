"""What our vCenter user must be allowed to do with a VM before it is stopped. Pure.

Invariant: nothing is stopped that could not be started again, nor moved where it is to go.
"""

from __future__ import annotations

from collections.abc import Collection

STOP = ("VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.PowerOn")
MOVE = "Resource.ColdMigrate"
POOL = "Resource.AssignVMToPool"  # asked for only where the VM changes its resource pool: in another cluster
MATTER = (*STOP, MOVE, POOL)


def missing(lacks: Collection[str], *, moves: bool, pool: bool = False) -> tuple[str, ...]:
    """Of what our user lacks on a VM, what keeps it from being stopped (and moved)."""
    needed = (*STOP, *((MOVE,) if moves else ()), *((POOL,) if moves and pool else ()))
    return tuple(one for one in needed if one in lacks)
