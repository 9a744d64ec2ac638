"""Runs a layer with PyTorch on a CPU, in the versions between which PyTorch lets the caller choose.

VELTAIR's versions are loop nests made by its compiler. PyTorch's libraries do not let a caller choose loop nests, but
these versions:

- ``whole``: the operator as it is usually called, oneDNN's convolution or MKL's product;
- ``channels-last``: the same convolution on data in PyTorch's format channels_last (all channels of a pixel together);
- ``im2col``: oneDNN is switched off, so that the input is unrolled into a matrix and multiplied: more bytes for the
  same work;
- ``quarters``: a quarter of the filters, columns or heads at a time, one after the other. Smaller blocks of weights and
  outputs are in use at a time, and the input is read four times. This is the nearest to VELTAIR's choices of locality.

Parallelism is the number of threads, one per core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from provision.models.cpu.layers import Layer

if TYPE_CHECKING:
    from torch import torch

WHOLE, CHANNELS_LAST, IM2COL, QUARTERS = "whole", "channels-last", "im2col", "quarters"
PARTS = 4


def versions_of(layer: Layer) -> tuple[str, ...]:
    """The names of the versions of a layer."""
    if layer.depthwise:
        return WHOLE, CHANNELS_LAST
    return (WHOLE, CHANNELS_LAST, IM2COL, QUARTERS) if layer.kernel else (WHOLE, QUARTERS)


def work(layer: Layer, version: str) -> Callable[[], object]:
    """A function that runs a layer once on random numbers and returns its outputs. Also switches oneDNN on or off."""
    from torch.backends import mkldnn

    mkldnn.enabled = version != IM2COL
    return _convolution(layer, version) if layer.kernel else _product(layer, version)


def _convolution(layer: Layer, version: str) -> Callable[[], object]:
    import torch

    size, groups = round(layer.m**0.5) * layer.stride, layer.channels if layer.depthwise else 1
    form = torch.channels_last if version == CHANNELS_LAST else torch.contiguous_format
    filters = layer.channels if layer.depthwise else layer.n
    weights = torch.randn(filters, layer.channels // groups, layer.kernel, layer.kernel).to(memory_format=form)
    data = torch.randn(1, layer.channels, size, size).to(memory_format=form)
    options = {"stride": layer.stride, "padding": layer.kernel // 2, "groups": groups}
    parts = _parts(weights, version)
    return lambda: [torch.conv2d(data, part, **options) for part in parts]


def _product(layer: Layer, version: str) -> Callable[[], object]:
    """A function that multiplies vectors by weights, or activations by activations head by head."""
    import torch

    if layer.weights:
        data, parts = torch.randn(layer.m, layer.k), _parts(torch.randn(layer.n, layer.k), version)
        return lambda: [torch.nn.functional.linear(data, part) for part in parts]
    left, right = torch.randn(layer.batch, layer.m, layer.k), torch.randn(layer.batch, layer.k, layer.n)
    heads = list(zip(_parts(left, version), _parts(right, version), strict=True))
    return lambda: [torch.bmm(*head) for head in heads]


def _parts(tensor: torch.Tensor, version: str) -> Sequence[torch.Tensor]:
    return tensor.chunk(PARTS) if version == QUARTERS else (tensor,)
