"""Files from which training goes on where it stopped."""

import io
import pickle
from pathlib import Path

import torch

from provision.heuristics.inss_policy import Trained
from provision.instances.files import reason, write_bytes
from provision.models.errors import InputError
from provision.training.train import Training


def save(training, path):
    """Write all that ``load`` needs; an older checkpoint gives way."""
    file = io.BytesIO()
    torch.save(training.state(), file)
    write_bytes(path, file.getvalue(), force=True)


def load(path, system, seed):
    """The Training in a file.

    Raises
    ------
    InputError
        When the file cannot be read, is no checkpoint, or one of another system or seed.
    """
    training = Training(system, seed)
    try:
        state = torch.load(io.BytesIO(Path(path).read_bytes()), weights_only=True)
        trained = Trained.model_validate_json(state["trained"])
        if not trained.fits(system) or trained.rates_rps != training.policy.trained.rates_rps or trained.seed != seed:
            raise InputError(f"{path}: was written for another instance or --seed {trained.seed}; leave out --resume")
        training.restore(state)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}; leave out --resume to begin anew") from None
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        raise InputError(f"{path}: is no checkpoint of provision train; leave out --resume to begin anew") from None
    return training
