"""Finds the GPU type of a product by the name that its driver gives it."""

import re

from provision.models.hardware.gpu import GpuType, gpu_types

FORM_FACTOR = re.compile(r"sxm\d?|pcie|nvidia|tesla|geforce|\d+gb")


def names_type(product: str, kind: GpuType) -> bool:
    """Whether a product's name is that of a GPU type. The chips must agree, and the memory sizes if both names tell
    them.
    """
    words, wanted = _words(product), _words(kind.product)
    chip = {word for word in wanted if not FORM_FACTOR.fullmatch(word)}
    sizes = [{word for word in one if re.fullmatch(r"\d+gb", word)} for one in (words, wanted)]
    return chip <= words and (not all(sizes) or sizes[0] == sizes[1])


def type_of(product: str) -> GpuType | None:
    """The GPU type of a product's name; the one with the longest name if several fit."""
    fitting = [kind for kind in gpu_types().values() if names_type(product, kind)]
    return max(fitting, key=lambda kind: len(kind.product), default=None)


def _words(product: str) -> set[str]:
    return set(re.split(r"[\s-]+", product.lower()))
