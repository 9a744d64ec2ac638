"""The layered networks that ship, made from the shapes that their papers publish. They are the seven networks that
VELTAIR's public program names (SJTU-ReArch-Group/VELTAIR_ASPLOS22, ``include/utils.hpp``). QoS targets are those of
MLPerf inference's server scenario, which VELTAIR follows: ResNet-50 15 ms, SSD-ResNet34 100 ms, BERT 130 ms, and
MobileNet 10 ms (in version 0.5). GoogLeNet is not in MLPerf; as an image classifier it gets the target of ResNet-50.
EfficientNet and Tiny-YOLOv2 are not in MLPerf either; the program calls them light, and they get the target of
MobileNet. Two choices were made for this package: SSD-ResNet34 takes 300 x 300 images (as in MLPerf's training task;
the 1200 x 1200 images of its server scenario are more work than VELTAIR's CPU can do in 100 ms), and BERT is
BERT-large. It has 384 tokens, as in the program's configuration and in MLPerf; one query of this length takes most of
the CPU for its 130 ms. EfficientNet has the layers that the program's configuration lists: the widths of
EfficientNet-B4 on 224 x 224 images, without squeeze and excitation.
"""

from collections.abc import Sequence
from functools import cache

from provision.models.cpu.layers import Layer, Network, conv, dense, depthwise

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
