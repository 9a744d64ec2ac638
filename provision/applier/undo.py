"""Plans how to undo a run: exactly the changes of the run are undone.

MIG instances that something else has made meanwhile are kept, and so is the MIG mode of their GPUs. Instances that
something else has destroyed are not made again.
"""

from collections.abc import Collection
from typing import NamedTuple

from provision.applier.journal import Run
from provision.applier.layout import GpuLayout, MachineLayout, Observed, ObservedGpu, ObservedSlice, Place, SliceLayout
from provision.applier.steps import exclude


class WayBack(NamedTuple):
    """How to undo a run.

    Attributes
    ----------
    layout
        The layout that undoes the run's changes, as far as other instances leave room.
    obstacles
        A line for everything that cannot be restored because another instance is in its place.
    kept
        A line for every instance that something else made and that is kept.
    """

    layout: MachineLayout
    obstacles: tuple[str, ...]
    kept: tuple[str, ...]


def way_back(present: Observed, run: Run, evict_foreign: bool = False) -> WayBack:
    """Plan how to undo a run from the present state.

    Parameters
    ----------
    present
        The Observed state.
    run
        The Run, with all that the journal has recorded of it.
    evict_foreign
        Whether instances that something else made may be destroyed if they are in the way.
    """
    goals: list[GpuLayout] = []
    obstacles: list[str] = []
    kept: list[str] = []
    for former in run.former.gpus:
        here = present.gpu(former.uuid)
        if here is None:
            continue
        back = _Back(here, former, run, evict_foreign)
        goals.append(back.goal())
        obstacles += back.obstacles
        kept += back.kept
    return WayBack(MachineLayout(gpus=tuple(goals)), tuple(obstacles), tuple(kept))


class _Back:
    """How to undo a run on one GPU."""

    def __init__(self, here: ObservedGpu, former: GpuLayout, run: Run, evict_foreign: bool) -> None:
        self.here, self.former, self.run, self.evict_foreign = here, former, run, evict_foreign
        self.now = {piece.key: piece for piece in here.slices}
        self.before = {piece.key: piece for piece in former.slices}
        self.obstacles: list[str] = []
        self.kept: list[str] = []

    def goal(self) -> GpuLayout:
        """The layout of the GPU that undoes the run's changes."""
        switched = self.here.uuid in self.run.switched
        if self.here.mig != self.former.mig:
            strangers = [piece for piece in self.here.slices if piece.strange and not piece.unsure]
            if switched and (not strangers or self.evict_foreign):
                return self.former
            return self._in_other_mode(strangers)
        slices = [goal for key in self.before | self.now if (goal := self._slice(key))]
        pending = self.former.mig_pending if switched else self.here.mig_pending
        return self.former.model_copy(update={"mig_pending": pending, "slices": tuple(self._with_room(slices))})

    def _in_other_mode(self, strangers: list[ObservedSlice]) -> GpuLayout:
        """The layout if the MIG mode stays, because something else made instances or switched it. Only the run's
        instances go.
        """
        self._keep(strangers, f", and so does MIG {'on' if self.here.mig else 'off'}")
        if not strangers:
            what = f"MIG {'on' if self.here.mig else 'off'} was set by something else"
            self.obstacles.append(f"GPU {self.here.index}: {what}; its former layout cannot be brought back")
        return self.here.layout().model_copy(update={"slices": tuple(piece.layout() for piece in strangers)})

    def _slice(self, key: tuple[int | None, int]) -> SliceLayout | None:
        """The slice that is wanted at a place after the run is undone; None for no slice."""
        now, before = self.now.get(key), self.before.get(key)
        place: Place = (self.here.uuid, *key)
        if now is None:
            # An instance that something else made and destroyed is not restored.
            own = ({one.place for one in self.run.owned} - set(self.run.adopted)) | set(self.run.taken)
            return before if place in own else None
        if before is None and not now.unsure and (now.strange or place not in self.run.touched):
            self._keep([now])
            return now.layout()
        if before is None or place in self.run.touched:
            return before
        return now.layout().model_copy(update={"mps": before.mps, "replicas": before.replicas})

    def _with_room(self, slices: list[SliceLayout]) -> list[SliceLayout]:
        """The slices without conflicts with foreign instances: either the slices in conflict are left out or, if
        foreign instances may be evicted, these are.
        """
        missing = [piece for piece in slices if piece.key not in self.now]
        others = [piece for piece in slices if (now := self.now.get(piece.key)) and now.strange]
        clashes = [(new, old) for new in missing for old in others if exclude(old, new)]
        if self.evict_foreign:
            return _without(slices, [old for _, old in clashes])
        for new, old in clashes:
            self.obstacles.append(
                f"GPU {self.here.index}: {new.label} cannot be brought back: {old.label} stands there, which "
                f"{self.now[old.key].whose}; add --evict-foreign to destroy it"
            )
        return _without(slices, [new for new, _ in clashes])

    def _keep(self, strangers: list[ObservedSlice], more: str = "") -> None:
        for piece in strangers:
            self.kept.append(f"GPU {self.here.index}: {piece.label} stays, which {piece.whose}{more}")


def _without(slices: list[SliceLayout], gone: Collection[SliceLayout]) -> list[SliceLayout]:
    keys = {piece.key for piece in gone}
    return [piece for piece in slices if piece.key not in keys]
