"""Puts a plan on the GPUs: observes what runs, finds the difference, carries out steps, keeps a journal, rolls back.

NVML calls are made one at a time, and abandoned after two minutes without an answer. A lock on every GPU keeps two
appliers apart, even if their state directories differ. An applier never undoes what something else made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.applier.execute import Permissions as Permissions
    from provision.applier.operations import apply as apply
    from provision.applier.operations import apply_last as apply_last
    from provision.applier.operations import default_state as default_state
    from provision.applier.operations import difference as difference
    from provision.applier.operations import rollback as rollback
    from provision.applier.operations import status as status
    from provision.applier.outcome import RunOutcome as RunOutcome
    from provision.applier.target import Commands as Commands

__all__ = [
    "Commands", "Permissions", "RunOutcome", "apply", "apply_last", "default_state", "difference", "rollback", "status",
]
_HOMES = {"Commands": "target", "Permissions": "execute", "RunOutcome": "outcome"}
"""The modules of names that are not in ``operations``. The module ``operations`` loads the driver's binding, which
exports do not need.
"""

if not TYPE_CHECKING:  # for a type checker, a module with ``__getattr__`` has every name

    def __getattr__(name: str) -> object:
        """Import a name of ``__all__`` on its first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'operations')}"), name)
