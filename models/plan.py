"""A plan: what stands on every GPU, complete enough to apply."""


from provision.models.fields import Count, Flag, Fraction, Name, NonNegative, PositiveCount, Record, Text, Version


class Replica(Record):
    """The server processes of one workload on one slice.

    ``sm_share`` is the part of the slice's SMs that each process may use, ``rate_rps`` the part of the
    workload's rate that is routed here.
    """

    workload: Name
    batch: PositiveCount
    processes: PositiveCount = 1
    sm_share: Fraction = 1.0
    rate_rps: NonNegative


class Slice(Record):
    """The part of a GPU that replicas run in: a MIG instance at a memory slice, or ``whole``."""

    profile: Name
    start: Count = 0
    replicas: tuple[Replica, ...] = ()


class PlannedGpu(Record):
    """One GPU with its slices: a pattern, placed."""

    gpu: Name
    mig: Flag
    slices: tuple[Slice, ...]


class Plan(Record):
    """The GPUs of a plan; ``digest`` is that of the instance it was made for, empty when unknown."""

    version: Version
    instance: Name
    digest: Text = ""
    method: Text = ""
    gpus: tuple[PlannedGpu, ...]

    def replicas(self):
        """Every (GPU index, slice index, slice, replica), in order."""
        for at, gpu in enumerate(self.gpus):
            for position, piece in enumerate(gpu.slices):
                for replica in piece.replicas:
                    yield at, position, piece, replica
