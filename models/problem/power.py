"""Power: what GPUs draw, what the energy costs, and limits on it.

A GPU draws its idle watts and, in proportion to how busy it is, up to its full watts: the cap of its data sheet. Idle
watts were measured on the GPUs of MEASURED_IDLE_W (iGniter's profiles); both idle at 18 % of their cap, which is
assumed of other types. Of language models on A100s Splitwise measured peaks of 1.0 times the cap and means of 0.6 to
0.8 times. Limits count full watts, since any GPU may draw them at any moment; energy counts mean watts.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from provision.models.base.fields import Name, NonNegative, Positive, Record, empty
from provision.models.hardware.gpu import gpu_type, split
from provision.models.problem.workload import FleetEntry

MEASURED_IDLE_W: Mapping[str, float] = {"v100": 53.5, "t4": 12.5}
"""The idle watts of GPUs on which they were measured."""
ASSUMED_IDLE = 0.18
"""The idle watts of other GPUs, as a part of their cap."""
W_PER_KW = 1000.0


class Watts(Record):
    """What a GPU draws when nothing runs on it, and when it is fully busy."""

    idle_w: NonNegative
    full_w: Positive

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.idle_w > self.full_w:
            raise ValueError(f"idle_w {self.idle_w:g} is above full_w {self.full_w:g}; exchange them")
        return self


class Power(Record):
    """The price of energy and limits on power. ``price_per_kwh`` is in the currency of the fleet's prices; ``overhead``
    is what cooling and conversion multiply a GPU's energy by. ``limit_w`` is the most that the GPUs of a plan may draw
    together, and ``node_limit_w`` the most of one entry of the fleet (a GPU, or a node of several), both at full load
    and without overhead. ``watts`` replaces what is known of a GPU type.
    """

    price_per_kwh: NonNegative | None = None
    overhead: float = Field(default=1.0, strict=True, ge=1, le=10)
    limit_w: Positive | None = None
    node_limit_w: Positive | None = None
    watts: dict[Name, Watts] = Field(default={}, exclude_if=empty)

    def of(self, gpu: str) -> Watts:
        """What a GPU type draws; a node draws what its GPUs draw."""
        many, single = split(gpu)
        known = self.watts.get(single)
        cap_w = gpu_type(single).power_cap_w
        idle_w = known.idle_w if known else MEASURED_IDLE_W.get(single, ASSUMED_IDLE * cap_w)
        return Watts(idle_w=many * idle_w, full_w=many * (known.full_w if known else cap_w))

    def per_hour(self, watts: float) -> float:
        """What so many watts cost per hour; 0 if energy has no price."""
        return (self.price_per_kwh or 0.0) * self.overhead * watts / W_PER_KW

    def check(self, fleet: Sequence[FleetEntry]) -> None:
        """Refuse a price of energy beside GPUs without prices, watts of unknown GPUs, and entries over the limits.
        Raises ValueError if there are any.
        """
        if self.price_per_kwh is not None and any(one.price_per_hour is None for one in fleet):
            raise ValueError("power.price_per_kwh: counts beside the price of GPUs; give every fleet entry "
                             "price_per_hour, 0 for GPUs that you own")
        for name in self.watts:
            if split(name)[0] > 1:
                raise ValueError(f"power.watts: {name} is a node; state the watts of one GPU")
            gpu_type(name)
        for at, one in enumerate(fleet):
            if self.node_limit_w is not None and self.of(one.gpu).full_w > self.node_limit_w:
                raise ValueError(f"fleet[{at}].gpu: {one.gpu} draws up to {self.of(one.gpu).full_w:g} W, "
                                 f"power.node_limit_w is {self.node_limit_w:g}; leave it out or raise the limit")
