"""DNNs as chains of layers and layers as matrix products, for models of inference on CPUs (VELTAIR, ASPLOS 2022).

A convolution counts as the product of its unrolled input (im2col) and its filters: ``m`` output positions, ``n``
filters, and ``k`` inputs per output. Activations, normalisation and pooling count as fused into the layer before them
(VELTAIR, section 4.1) and take no time of their own; branches run one after the other. The batch size is 1, and numbers
have 4 bytes.
"""

from typing import NamedTuple

BYTES = 4
"""The bytes of a single-precision number."""
LANE_CHANNELS = 16
"""The number of channels on which a depthwise convolution works together: two vectors of AVX2."""


class Layer(NamedTuple):
    """A layer: ``batch`` independent products of (m, k) and (k, n) matrices.

    Attributes
    ----------
    name
        The name of the layer in the paper of the network.
    m, n, k, batch
        The dimensions of the matrices, and the number of products.
    inputs
        The number of numbers in the input; it is less than ``batch * m * k`` if the windows of a convolution overlap.
    weights
        Whether the second matrix holds weights; otherwise it holds activations.
    kernel, stride
        The width and the step of a convolution's windows; 0 for other layers.
    effort
        The time for computing, as a multiple of the time that the micro-kernel's efficiency gives.
    """

    name: str
    m: int
    n: int
    k: int
    inputs: int
    batch: int = 1
    weights: bool = True
    kernel: int = 0
    stride: int = 0
    effort: float = 1.0

    @property
    def flops(self) -> int:
        """The number of floating-point operations; a multiplication with an addition counts as two."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def weight_count(self) -> int:
        """The number of weights."""
        return self.batch * self.n * self.k if self.weights else 0

    @property
    def bytes(self) -> int:
        """The bytes of the input, the second matrix and the output together, each counted once."""
        return BYTES * (self.inputs + self.batch * self.n * (self.k + self.m))

    @property
    def depthwise(self) -> bool:
        """Whether the layer is a convolution that convolves every channel on its own."""
        return self.kernel > 0 and self.batch > 1

    @property
    def channels(self) -> int:
        """The number of channels of a convolution's input."""
        return self.batch * self.n if self.depthwise else self.k // self.kernel**2


class Network(NamedTuple):
    """A DNN: its name, the latency target of a query in ms, its class of weight in VELTAIR (light, medium, heavy), and
    its layers in order.
    """

    name: str
    qos_ms: float
    weight: str
    layers: tuple[Layer, ...]

    @property
    def flops(self) -> int:
        """The number of floating-point operations of a query."""
        return sum(layer.flops for layer in self.layers)

    @property
    def firsts(self) -> list[str]:
        """For every layer, the name of the first layer with the same shape."""
        first = {layer._replace(name=""): layer.name for layer in reversed(self.layers)}
        return [first[layer._replace(name="")] for layer in self.layers]


def conv(name: str, size: int, channels: int, filters: int, kernel: int = 1, stride: int = 1) -> Layer:
    """A convolution with ``size`` x ``size`` outputs."""
    inputs = channels * (size * stride) ** 2
    return Layer(name, size * size, filters, channels * kernel * kernel, inputs, kernel=kernel, stride=stride)


def depthwise(name: str, size: int, channels: int, stride: int = 1, kernel: int = 3) -> Layer:
    """A convolution of every channel with a filter of its own."""
    batch, inputs = channels // LANE_CHANNELS, channels * (size * stride) ** 2
    return Layer(name, size * size, LANE_CHANNELS, kernel * kernel, inputs, batch, kernel=kernel, stride=stride)


def dense(name: str, rows: int, inputs: int, outputs: int) -> Layer:
    """A fully connected layer applied to ``rows`` vectors."""
    return Layer(name, rows, outputs, inputs, rows * inputs)
