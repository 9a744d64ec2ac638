"""Writes and reads checkpoints: files from which training is resumed."""

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from provision.heuristics.inss.policy import Trained
from provision.heuristics.inss.system import System
from provision.instances.files.files import FilePath, reason, write_bytes
from provision.models.base.errors import InputError
from provision.training.settings import Settings
from provision.training.train import Training


def save(training: Training, path: FilePath) -> None:
    """Write everything that ``load`` needs; an older checkpoint is replaced."""
    file = io.BytesIO()
    torch.save(training.state(), file)
    write_bytes(path, file.getvalue(), force=True)


def load(path: FilePath, system: System, seed: int, settings: Settings) -> Training:
    """Read the training in a checkpoint. Raises InputError if the file cannot be read, is no checkpoint, or is of
    another system, seed or settings.
    """
    state, trained = _read(path)
    training = Training(system, seed, settings)
    if state.get("settings") != list(settings):
        raise InputError(f"{path}: was written with other --settings; leave out --resume to begin anew")
    if trained.model_copy(update={"episodes": 0}) != training.policy.trained:
        raise InputError(
            f"{path}: was written for another instance than {system.instance.name} or another seed than {seed} "
            f"(--seed {trained.seed}); leave out --resume to begin anew"
        )
    training.restore(state)
    return training


def _read(path: FilePath) -> tuple[dict[str, Any], Trained]:
    """The state in a checkpoint, and its description (Trained)."""
    try:
        state = torch.load(io.BytesIO(Path(path).read_bytes()), weights_only=True)
        return state, Trained.model_validate_json(state["trained"])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}; leave out --resume to begin anew") from None
    except (RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        raise InputError(f"{path}: is no checkpoint of provision train; leave out --resume to begin anew") from None
