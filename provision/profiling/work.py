"""Loads what is measured: torchvision's models, or any callable that runs a batch."""

from collections.abc import Callable
from importlib import import_module

from provision.models.base.errors import InputError

IMAGE = (3, 224, 224)
LARGER = {"inception_v3": (3, 299, 299)}
"""Shapes of one input of torchvision's models; for other models a callable is needed."""


def load(name: str, device: str, batch: int) -> Callable[[], object]:
    """A function that runs one batch and returns when its work is submitted.

    Parameters
    ----------
    name
        ``torchvision:resnet50``, or ``package.module:factory``, where ``factory(device, batch)`` returns the function.
    device
        ``cuda`` or ``cpu``.
    batch
        Requests in the batch.

    Raises
    ------
    InputError
        When there is no such model, module or factory.
    """
    source, colon, what = name.partition(":")
    if not (source and colon and what):
        raise InputError(f"model {name!r}: write torchvision:resnet50 or package.module:factory")
    if source == "torchvision":
        return _torchvision(what, device, batch)
    try:
        factory = getattr(import_module(source), what)
    except (ImportError, AttributeError) as error:
        raise InputError(f"model {name!r}: cannot be loaded: {error}; is it on the Python path?") from None
    return factory(device, batch)


def _torchvision(name: str, device: str, batch: int) -> Callable[[], object]:
    """A torchvision classifier with random weights, whose speed is that of trained ones."""
    try:
        import torch
        from torchvision import models
    except ImportError:
        raise InputError("torchvision is not installed; pip install 'provision[profile]'") from None
    if name not in models.list_models(module=models):
        raise InputError(f"model torchvision:{name}: torchvision has no such classifier")
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    model = models.get_model(name, weights=None, **options).eval().to(device)
    data = torch.randn(batch, *LARGER.get(name, IMAGE), device=device)

    def run() -> None:
        with torch.inference_mode():
            model(data)

    return run
