"""The trained part of InSS: an actor network that chooses each workload's GPU and SM share, and its file format.

The network is as in the paper (section 6.1: hidden layers of 512 and 256 units with ReLU). Its output is divided into
heads, as in the public program: every workload has a head over the GPUs and a head over levels of its SM share. A
decision takes the most likely value of each head; ``filled`` turns the levels into units. A file holds the weights as
8-bit integers with one scale per row, and describes the system for which the policy was trained.
"""

import io
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.heuristics.inss.system import Provisioning, System, filled
from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Name, NonNegative, Positive, PositiveCount, Record, Version

LEVELS = 20
"""The number of levels of the SM share that a head distinguishes."""
LARGEST = 127
"""The largest integer that encodes a weight."""
OWN = ("rates_rps", "episodes", "seed")
"""The fields of a Trained that may differ between a policy and the system for which it is used."""


class Trained(Record):
    """The system that a policy was trained for (GPUs; each workload's model, SLO and rate), and for how many episodes.

    ``memory`` says whether the actor is told how full every GPU's memory is.
    """

    version: Version = 1
    gpu: Name
    gpus: PositiveCount
    performance: Name
    models: tuple[Name, ...]
    slo_ms: tuple[Positive, ...]
    rates_rps: tuple[NonNegative, ...]
    episodes: Count = 0
    seed: Count = 0
    memory: bool = False

    def fits(self, system: System) -> bool:
        """Whether the policy can be used for a System, which may differ only in its rates."""
        asked = trained_for(system)
        return all(getattr(self, name) == getattr(asked, name) for name in Trained.model_fields if name not in OWN)


def trained_for(system: System, **more: Any) -> Trained:
    """The Trained that describes a System; ``more`` sets further fields."""
    workloads = system.instance.workloads
    return Trained(
        gpu=_of_types(system, [one.gpu for one in system.data]), gpus=system.gpus,
        performance="+".join(one.name for one in system.data),
        models=tuple(one.model for one in workloads), slo_ms=tuple(one.slo_ms for one in workloads),
        rates_rps=tuple(map(float, system.rates_rps)), memory=system.knows_memory, **more,
    )


def _of_types(system: System, names: list[str]) -> str:
    """The name of the GPU type; with several types, all names with their numbers."""
    if len(names) == 1:
        return names[0]
    return "+".join(f"{number}x{name}" for name, number in zip(names, np.bincount(system.kind), strict=True))


ActorLayers = tuple[tuple[Floats, Floats], ...]
"""The weights (out, in) and biases (out,) of each layer of an actor."""


class TrainedPolicy(NamedTuple):
    """A trained policy: the Trained that describes it, and the weights (out, in) and biases (out,) of each layer of its
    actor.
    """

    trained: Trained
    layers: ActorLayers

    def act(self, system: System, rates_rps: Floats, queued: Floats) -> Ints:
        """(systems, workloads, 2) the most likely actions for empty GPUs: GPU and share level of each workload."""
        empty = np.zeros((len(rates_rps), system.gpus))
        signal: NDArray[Any] = observation(np.array(self.trained.rates_rps), system, rates_rps, queued, empty)
        for number, (weights, bias) in enumerate(self.layers):
            signal = (np.maximum(signal, 0) if number else signal) @ weights.T + bias
        heads = signal.reshape(len(signal), system.workloads, system.gpus + LEVELS)
        return np.stack([heads[..., : system.gpus].argmax(-1), heads[..., system.gpus :].argmax(-1)], axis=-1)


def observation(usual_rps: Floats, system: System, rates_rps: Floats, queued: Floats,
                used_gib: Floats) -> NDArray[np.float32]:
    """The network's input: rates divided by the usual ones, backlogs divided by the largest batch, and used memory.

    Returns
    -------
    ndarray
        (systems, ``inputs(system)``) the rates, then the backlogs, then the part of every GPU's memory that is in use,
        the last only where the data states memory.
    """
    parts = np.divide(rates_rps, usual_rps, out=np.zeros_like(rates_rps), where=usual_rps > 0)
    memory = [used_gib / system.capacity_gib] if system.knows_memory else []
    return np.concatenate([parts, queued / system.max_batch, *memory], axis=1).astype(np.float32)


def inputs(system: System) -> int:
    """The number of the network's inputs."""
    return 2 * system.workloads + system.gpus * system.knows_memory


def provisioning(system: System, actions: ArrayLike) -> Provisioning:
    """The Provisioning for actions, an array (systems, workloads, 2) of GPUs and share levels."""
    gpu, level = np.moveaxis(np.asarray(actions), -1, 0)
    wishes = np.ceil((level + 1) * system.gpu_units[gpu] / LEVELS).astype(int)
    return Provisioning(gpu, filled(gpu, wishes, system.gpu_units))


def packed(policy: TrainedPolicy) -> bytes:
    """The bytes of a policy's file."""
    arrays: dict[str, Any] = {"trained": np.array(policy.trained.model_dump_json())}
    for number, (weights, bias) in enumerate(policy.layers):
        scale = np.maximum(np.abs(weights).max(axis=1), np.finfo(np.float32).tiny) / LARGEST
        arrays[f"weights{number}"] = np.rint(weights / scale[:, None]).astype(np.int8)
        arrays[f"scale{number}"], arrays[f"bias{number}"] = scale.astype(np.float32), bias.astype(np.float32)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read_policy(path: str | os.PathLike[str]) -> TrainedPolicy:
    """The TrainedPolicy in a file. Raises InputError if the file cannot be read or is not a policy."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            trained = Trained.model_validate_json(str(file["trained"]))
            policy = TrainedPolicy(trained, tuple(_layer(file, number) for number in range(len(file.files) // 3)))
        _refuse_misshapen(policy)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; give the path of a policy") from None
    except (ValueError, KeyError, EOFError, NotImplementedError, BadZipFile, zlib.error):
        raise InputError(f"{path}: is no policy; write one with provision train INSTANCE --out {path}") from None
    return policy


def _layer(file: Any, number: int) -> tuple[Floats, Floats]:
    """(weights (out, in), biases (out,)) of a layer in a policy's file."""
    scale = file[f"scale{number}"].astype(float)
    return file[f"weights{number}"] * scale[:, None], file[f"bias{number}"].astype(float)


def _refuse_misshapen(policy: TrainedPolicy) -> None:
    """Raise ValueError if the weights of the layers do not fit each other, or the models and GPUs of the training."""
    trained, sizes = policy.trained, [weights.shape for weights, _ in policy.layers]
    ends = 2 * len(trained.models) + trained.gpus * trained.memory, len(trained.models) * (trained.gpus + LEVELS)
    through = [ends[0], *(size[0] for size in sizes)]
    if through[-1] != ends[1] or any(size[1] != before for size, before in zip(sizes, through, strict=False)):
        raise ValueError("layers")
