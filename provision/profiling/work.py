"""Loads the work that is measured: models of torchvision, or any callable that runs a batch."""

from collections.abc import Callable
from importlib import import_module

from provision.models.base.errors import InputError

IMAGE = (3, 224, 224)
LARGER = {"inception_v3": (3, 299, 299)}
"""The shapes of one input of those torchvision models whose input is not of the shape IMAGE. Models of other packages
are measured as callables.
"""


def load(name: str, device: str, batch: int) -> Callable[[], object]:
    """Return a function that runs one batch, and that returns when the work of the batch is submitted.

    Parameters
    ----------
    name
        ``torchvision:resnet50``, or ``package.module:factory``, where ``factory(device, batch)`` returns the function.
    device
        ``cuda`` or ``cpu``.
    batch
        The number of requests in the batch.

    Raises
    ------
    InputError
        If there is no such model, module or factory.
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
    """A torchvision classifier with random weights; it is as fast as one with trained weights."""
    try:
        import torch
        from torchvision import models
    except ImportError:
        raise InputError("torchvision is not installed; pip install 'gpu-provision[profile]'") from None
    if name not in models.list_models(module=models):
        raise InputError(f"model torchvision:{name}: torchvision has no such classifier")
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    model = models.get_model(name, weights=None, **options).eval().to(device)
    data = torch.randn(batch, *LARGER.get(name, IMAGE), device=device)

    def run() -> None:
        with torch.inference_mode():
            model(data)

    return run
