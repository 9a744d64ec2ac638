"""DNNs as chains of layers and layers as matrix products, for models of inference on CPUs (VELTAIR, ASPLOS 2022).

A convolution counts as the product of its unrolled input (im2col) and its filters: ``m`` output positions, ``n``
filters, and ``k`` inputs per output. Activations, normalisation and pooling count as fused into the layer before them
(VELTAIR, section 4.1) and take no time of their own; branches run one after the other. The batch size is 1, and numbers
have 4 bytes.

Seven layered networks ship, made from the shapes that their papers publish. They are the networks that VELTAIR's public
program names (SJTU-ReArch-Group/VELTAIR_ASPLOS22, ``include/utils.hpp``). QoS targets are those of MLPerf inference's
server scenario, which VELTAIR follows: ResNet-50 15 ms, SSD-ResNet34 100 ms, BERT 130 ms, and MobileNet 10 ms (in
version 0.5). GoogLeNet is not in MLPerf; as an image classifier it gets the target of ResNet-50. EfficientNet and
Tiny-YOLOv2 are not in MLPerf either; the program calls them light, and they get the target of MobileNet. Two choices
were made for this package: SSD-ResNet34 takes 300 x 300 images (as in MLPerf's training task; the 1200 x 1200 images of
its server scenario are more work than VELTAIR's CPU can do in 100 ms), and BERT is BERT-large. It has 384 tokens, as in
the program's configuration and in MLPerf; one query of this length takes most of the CPU for its 130 ms. EfficientNet
has the layers that the program's configuration lists: the widths of EfficientNet-B4 on 224 x 224 images, without
squeeze and excitation.
"""

from collections.abc import Sequence
from functools import cache
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


BERT_TOKENS = 384
MEASURED_TOKENS = 128
"""The number of tokens with which ``profile-layers`` measures BERT; it is small so that measuring takes only minutes.
"""
RESNET50 = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
"""(Size, inner channels, blocks) of every stage (He et al. 2016, Table 1)."""
GOOGLENET = (
    ("3a", 28, 192, 64, 96, 128, 16, 32, 32), ("3b", 28, 256, 128, 128, 192, 32, 96, 64),
    ("4a", 14, 480, 192, 96, 208, 16, 48, 64), ("4b", 14, 512, 160, 112, 224, 24, 64, 64),
    ("4c", 14, 512, 128, 128, 256, 24, 64, 64), ("4d", 14, 512, 112, 144, 288, 32, 64, 64),
    ("4e", 14, 528, 256, 160, 320, 32, 128, 128), ("5a", 7, 832, 256, 160, 320, 32, 128, 128),
    ("5b", 7, 832, 384, 192, 384, 48, 128, 128),
)
"""The inception modules: (name, size, channels, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection) (Szegedy et al.

2015).
"""
MOBILENET_V2 = (
    (1, 16, 1, 112, 3), (6, 24, 2, 56, 3), (6, 32, 3, 28, 3), (6, 64, 4, 14, 3), (6, 96, 3, 14, 3), (6, 160, 3, 7, 3),
    (6, 320, 1, 7, 3),
)
"""(Expansion, channels, repeats, output size, kernel) of every stage (Sandler et al. 2018, Table 2)."""
EFFICIENTNET = (
    (1, 24, 1, 112, 3), (6, 32, 4, 56, 3), (6, 56, 4, 28, 5), (6, 112, 6, 14, 3), (6, 160, 6, 14, 5),
    (6, 272, 8, 7, 5), (6, 448, 1, 7, 3),
)
"""The stages of EfficientNet (Tan and Le 2019) in the form of MOBILENET_V2, with the numbers of blocks of VELTAIR's
public program.
"""
TINY_YOLO = ((416, 3, 16), (208, 16, 32), (104, 32, 64), (52, 64, 128), (26, 128, 256), (13, 256, 512),
             (13, 512, 1024), (13, 1024, 1024))
"""(Size, channels, filters) of Tiny-YOLOv2's 3x3 convolutions (Redmon and Farhadi 2017)."""
YOLO_OUTPUTS = 125
"""The numbers that the network returns for each of the 13 x 13 cells: five boxes with five numbers and 20 classes each
(Pascal VOC).
"""
SSD_STAGES = ((75, 64, 3), (38, 128, 4), (38, 256, 6))
"""(Size, filters, blocks) of the stages of ResNet-34 that SSD keeps; the third stage keeps its resolution."""
SSD_EXTRA = ((38, 19, 256, 256, 512), (19, 10, 512, 256, 512), (10, 5, 512, 128, 256), (5, 3, 256, 128, 256),
             (3, 1, 256, 128, 256))
"""(Size before, size after, input channels, inner channels, output channels) of the added blocks."""
SSD_MAPS = ((38, 256, 4), (19, 512, 6), (10, 512, 6), (5, 256, 6), (3, 256, 4), (1, 256, 4))
"""(Size, channels, default boxes) of the feature maps (Liu et al. 2016)."""
SSD_CLASSES = 81


def resnet50() -> Network:
    """ResNet-50, with the stride in the 3x3 convolutions."""
    layers, channels, before = [conv("conv1", 112, 3, 64, 7, 2)], 64, 56
    for stage, (size, inner, blocks) in enumerate(RESNET50, 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            layers += [
                conv(f"{name}a", before, channels, inner),
                conv(f"{name}b", size, inner, inner, 3, before // size),
                conv(f"{name}c", size, inner, 4 * inner),
            ]
            if block == 1:
                layers.append(conv(f"{name}s", size, channels, 4 * inner, 1, before // size))
            channels, before = 4 * inner, size
    return Network("resnet50", 15.0, "medium", (*layers, dense("fc", 1, 2048, 1000)))


def googlenet() -> Network:
    """GoogLeNet without its auxiliary classifiers."""
    layers = [conv("conv1", 112, 3, 64, 7, 2), conv("conv2r", 56, 64, 64), conv("conv2", 56, 64, 192, 3)]
    for name, size, channels, one, reduce3, three, reduce5, five, pool in GOOGLENET:
        layers += [
            conv(f"{name}-1x1", size, channels, one),
            conv(f"{name}-3x3r", size, channels, reduce3), conv(f"{name}-3x3", size, reduce3, three, 3),
            conv(f"{name}-5x5r", size, channels, reduce5), conv(f"{name}-5x5", size, reduce5, five, 5),
            conv(f"{name}-pool", size, channels, pool),
        ]
    return Network("googlenet", 15.0, "medium", (*layers, dense("fc", 1, 1024, 1000)))


def mobilenet_v2() -> Network:
    """MobileNetV2 of width 1 on 224 x 224 images."""
    ends = conv("conv2", 7, 320, 1280), dense("fc", 1, 1280, 1000)
    return Network("mobilenet-v2", 10.0, "light", (*_inverted(MOBILENET_V2), *ends))


def efficientnet() -> Network:
    """EfficientNet with the layers of VELTAIR's public program."""
    ends = conv("conv2", 7, 448, 1280), dense("fc", 1, 1280, 1000)
    return Network("efficientnet", 10.0, "light", (*_inverted(EFFICIENTNET), *ends))


def _inverted(stages: Sequence[tuple[int, int, int, int, int]]) -> list[Layer]:
    """The layers of a first convolution with 32 filters and of stages of inverted residuals: expand, depthwise,
    project.
    """
    layers, channels, before = [conv("conv1", 112, 3, 32, 3, 2)], 32, 112
    for stage, (expansion, filters, repeats, size, kernel) in enumerate(stages, 1):
        for repeat in range(1, repeats + 1):
            name, inner = f"block{stage}_{repeat}", expansion * channels
            if expansion > 1:
                layers.append(conv(f"{name}-expand", before, channels, inner))
            layers += [depthwise(f"{name}-depthwise", size, inner, before // size, kernel),
                       conv(f"{name}-project", size, inner, filters)]
            channels, before = filters, size
    return layers


def tiny_yolo_v2() -> Network:
    """Tiny-YOLOv2 on 416 x 416 images."""
    layers = [conv(f"conv{number}", *shape, 3) for number, shape in enumerate(TINY_YOLO, 1)]
    return Network("tiny-yolo-v2", 10.0, "light", (*layers, conv("conv9", 13, 1024, YOLO_OUTPUTS)))


def ssd_resnet34() -> Network:
    """SSD with ResNet-34 on 300 x 300 images."""
    layers, channels, before = [conv("conv1", 150, 3, 64, 7, 2)], 64, 75
    for stage, (size, filters, blocks) in enumerate(SSD_STAGES, 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            stride = -(-before // size)
            layers += [conv(f"{name}a", size, channels, filters, 3, stride),
                       conv(f"{name}b", size, filters, filters, 3)]
            if channels != filters:
                layers.append(conv(f"{name}s", size, channels, filters, 1, stride))
            channels, before = filters, size
    for number, (before, size, inputs, inner, filters) in enumerate(SSD_EXTRA, 1):
        layers += [conv(f"extra{number}a", before, inputs, inner),
                   conv(f"extra{number}b", size, inner, filters, 3, max(1, before // size))]
    for number, (size, inputs, boxes) in enumerate(SSD_MAPS, 1):
        layers += [conv(f"box{number}", size, inputs, 4 * boxes, 3),
                   conv(f"class{number}", size, inputs, SSD_CLASSES * boxes, 3)]
    return Network("ssd-resnet34", 100.0, "heavy", tuple(layers))


def bert_large(tokens: int = BERT_TOKENS) -> Network:
    """BERT-large's encoder."""
    blocks, width, heads = 24, 1024, 16
    part = width // heads
    layers = []
    for block in range(1, blocks + 1):
        layers += [
            dense(f"{block}-query-key-value", tokens, width, 3 * width),
            Layer(f"{block}-scores", tokens, tokens, part, tokens * width, heads, weights=False),
            Layer(f"{block}-context", tokens, part, tokens, heads * tokens**2, heads, weights=False),
            dense(f"{block}-output", tokens, width, width),
            dense(f"{block}-up", tokens, width, 4 * width),
            dense(f"{block}-down", tokens, 4 * width, width),
        ]
    return Network("bert-large", 130.0, "heavy", tuple(layers))


@cache
def networks(bert_tokens: int = BERT_TOKENS) -> dict[str, Network]:
    """All shipped networks by name, light networks first; BERT has ``bert_tokens`` tokens."""
    made = (mobilenet_v2(), efficientnet(), tiny_yolo_v2(), googlenet(), resnet50(), ssd_resnet34(),
            bert_large(bert_tokens))
    return {network.name: network for network in made}
