"""The first instance of one language model that nobody measured: ``provision solve --model`` makes it from options."""

from contextlib import suppress
from typing import ClassVar

from provision.instances.files.files import refused
from provision.instances.importers.tokens.operators import Composed, asked_of, degrees_of, limits_of
from provision.models.base.arguments import local, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Positive, PositiveCount
from provision.models.base.objects import known
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.hardware.prices import ON_DEMAND, list_prices
from provision.models.performance.tokens.data import TokenModels
from provision.models.problem.instance import Instance

NEEDED = ("rate", "isl", "osl", "gpus")
NO_PRICES = "none"


class Described(Composed):
    """The fields of ``provision solve`` that describe an instance in place of a file."""

    group: ClassVar[str] = "in place of an instance: a language model, composed of operator times"
    rate: Positive | None = local(None, "R", "requests/s")
    isl: PositiveCount | None = local(None, "I", "tokens of a prompt")
    osl: PositiveCount | None = local(None, "O", "tokens of an answer")
    ttft: Positive | None = local(None, "T", "limit of the first token, ms")
    tpot: Positive | None = local(None, "T", "limit per further token, ms")
    percentile: float = local(99.0, "P", "within the limits")
    gpus: str | None = local(None, "TYPE,...", "GPU types to choose from: h100,l40s,a100")
    price: str | None = local(None, "PROVIDER", "list prices to compare by (provision gpus), or $ per GPU and hour; "
                                                "'none' counts GPUs (default: one that lists them all, else none)")
    disaggregated: Flag = local(False, None, "plan prefill and decode in pools of their own")
    instance_out: str | None = written("write the instance here, to change it or ask what-if")


def instance_described(options: Described) -> tuple[Instance, list[str]]:
    """The pair (the instance that the options describe, lines to print about it). Raises InputError if an option is
    missing, out of range, or names something unknown.
    """
    from provision.instances.importers.tokens.composed import composed_performance

    missing = [f"--{name}" for name in NEEDED if getattr(options, name) is None]
    if missing:
        raise InputError(f"solve --model {options.model}: add {', '.join(missing)}")
    if options.ttft is None or options.tpot is None:
        raise InputError("solve --model: both limits are needed; add --ttft and --tpot, in ms")
    files: list[TokenModels] = []
    lines: list[str] = []
    gpus = dict.fromkeys(name.strip() for name in known(options.gpus).split(",") if name.strip())
    if not gpus:
        raise InputError(f"--gpus {options.gpus}: name at least one GPU type, such as h100")
    for gpu in gpus:
        asked = asked_of(options, gpu)
        for degree in degrees_of(options, asked):  # each is a node of its own, so that none is paid for in part
            found = composed_performance(asked, [degree], limits_of(options), options.slices)
            files.append(found.data)
            lines += [*found.told, *found.notes]
    tokens = {"input": {"mean": float(known(options.isl))}, "output": {"mean": float(known(options.osl))}}
    with refused("solve"):
        instance = Instance(
            version=2, name=options.model, fleet=_fleet(files, options.price), performance=tuple(files),
            workloads=[{"name": options.model, "model": options.model, "rate_rps": options.rate, "tokens": tokens,
                        "slo": {"ttft_ms": options.ttft, "tpot_ms": options.tpot, "percentile": options.percentile}}])
    return instance, list(dict.fromkeys(lines))


def _fleet(files: list[TokenModels], price: str | None) -> list[dict[str, object]]:
    """The fleet entries for the GPU types of the files, at a provider's prices, or at one of the user per GPU and hour.
    An entry is for whole GPUs; or, if a model has no data on a whole GPU, for nodes on which a replica holds a group of
    GPUs.
    """
    gpus = [(data.gpu, any(set(one.slices) != {WHOLE} for one in data.models.values())) for data in files]
    entries: list[dict[str, object]] = [{"gpu": gpu} if node else {"gpu": gpu, "mig": False} for gpu, node in gpus]
    with suppress(ValueError):
        return [one | {"price_per_hour": float(price or "") * gpu_type(gpu).gpus}
                for one, (gpu, _) in zip(entries, gpus, strict=True)]
    provider = price or _provider_of_all([gpu for gpu, _ in gpus])
    return entries if provider == NO_PRICES else [one | {"price": provider} for one in entries]


def _provider_of_all(gpus: list[str]) -> str:
    """The first provider with a list price on demand for every one of the GPU types; NO_PRICES if there is none."""
    lists = [[price.provider for price in list_prices(gpu) if price.tier == ON_DEMAND] for gpu in gpus]
    return next((one for one in lists[0] if all(one in others for others in lists)), NO_PRICES)
