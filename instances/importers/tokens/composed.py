"""Composes performance data of a language model that nobody measured from the times of operators."""

from collections.abc import Sequence
from typing import NamedTuple

from provision.instances.files.files import refused
from provision.models.base.errors import InputError
from provision.models.fitting.operators.costs import fit_costs
from provision.models.hardware.gpu import SIZES, UNIT, WHOLE, gpu_type
from provision.models.performance.bands import Band, Origin, TokenBands
from provision.models.performance.operators.compose import PLAIN, Factors, Served, check
from provision.models.performance.operators.decoder import Decoder
from provision.models.performance.operators.laws import GpuOperators
from provision.models.performance.operators.servers import ServerSoftware, shipped_operators, shipped_servers
from provision.models.performance.tokens.data import EngineLimits, TokenModels
from provision.models.performance.tokens.step import TokenCosts

DIGITS = 4
"""Significant digits of a coefficient in a file."""
USUAL_HEADS, WIDEST = (64, 128), 2**15
"""Sizes of attention heads, and the widest matrices, to which laws were fitted."""
WIDER = 1.5
"""The factor by which bands of extrapolated predictions are wider."""
FEWEST_TOKENS = 1024
"""The least number of tokens of KV cache with which a server is of use."""


class Asked(NamedTuple):
    """A decoder by name on a GPU type, with its precisions and the software of its server.

    ``laws`` and ``factors`` replace the shipped operator laws; None for those.
    """

    name: str
    decoder: Decoder
    gpu: str
    software: ServerSoftware
    server: str
    precision: str = PLAIN
    kv_precision: str = PLAIN
    laws: GpuOperators | None = None
    factors: Factors | None = None

    def on(self, gpus: int, profile: str = WHOLE) -> Served:
        """The decoder as served on ``gpus`` GPUs, or on a MIG slice of one."""
        laws, kind = self.laws or shipped_operators()[self.gpu], gpu_type(self.gpu)
        if profile != WHOLE:
            assert kind.mig is not None
            part = kind.profiles[profile].memory / kind.mig.memory_slices
            laws = laws.sliced(kind.slice_sms(profile) / kind.sms, part, kind.slice_memory_gib(profile) * 2**30)
        return Served(self.decoder, laws, gpus, self.precision, self.kv_precision, self.factors,
                      self.software.memory_part)


class Composed(NamedTuple):
    """Performance data, and lines on it to print: ``told`` on stdout, ``notes`` (warnings) on stderr."""

    data: TokenModels
    told: tuple[str, ...]
    notes: tuple[str, ...]


def holding(asked: Asked) -> list[int]:
    """Return the numbers of GPUs that hold a decoder and FEWEST_TOKENS of KV cache, the least first. Raises InputError
    if there are no operator times for what is asked, or not even the largest node holds the decoder.
    """
    check(asked.on(1))
    if found := [gpus for gpus in (1, *SIZES)
                 if asked.decoder.heads % gpus == 0 and asked.on(gpus).kv_tokens >= FEWEST_TOKENS]:
        return found
    raise InputError(f"--model {asked.name}: its weights take {asked.on(1).weight_bytes / 2**30:.0f} GiB, more than "
                     f"{max(SIZES)} {asked.gpu} hold; take a lower --precision or a larger GPU")


def composed_performance(asked: Asked, degrees: Sequence[int], limits: EngineLimits, profiles: Sequence[str] = ()
                         ) -> Composed:
    """Compose performance data of a decoder on MIG slices of ``profiles``; if there are none, on groups of ``degrees``
    GPUs. Unless that is [1], they are groups of a node's GPUs. Raises InputError if there are no operator times for
    what is asked, or the weights leave no room for KV cache anywhere.
    """
    single = list(degrees) == [1]
    gpu = asked.gpu if single or profiles else f"{max(*degrees, min(SIZES))}x{asked.gpu}"
    gpu_type(gpu)
    places = ({name: asked.on(1, name) for name in profiles}
              or {WHOLE if single else f"{gpus}{UNIT}": asked.on(gpus) for gpus in degrees})
    for served in places.values():
        check(served)
    where = {name: f"{name} of {gpu}" if profiles else f"{served.gpus} {asked.gpu}" for name, served in places.items()}
    small = [name for name, served in places.items() if served.kv_tokens < FEWEST_TOKENS]
    if len(small) == len(places):
        what = f"--slices {','.join(profiles)}" if profiles else f"--tp {','.join(map(str, degrees))}"
        size_gib = asked.on(1).weight_bytes / 2**30
        raise InputError(f"{what}: {asked.name} takes {size_gib:.0f} GiB of weights in {asked.precision}, which leaves "
                         f"no room for KV cache; give {'larger ones' if profiles else f'{holding(asked)[0]} or more'}")
    slices, told = {}, []
    beyond = _beyond(asked.decoder)
    if profiles:
        beyond.append(f"operator times of whole GPUs, by the parts of {', '.join(profiles)}")
    bands = asked.software.bands
    if beyond:
        bands = TokenBands(ttft=bands.ttft.wider(WIDER), tpot=bands.tpot.wider(WIDER),
                           source=f"{bands.source}; extrapolated")
    for name in (one for one in places if one not in small):
        served = places[name]
        fit = fit_costs(served)
        costs = asked.software.around(fit.costs, asked.decoder, served.gpus)
        slices[name] = {"kv_tokens": served.kv_tokens, "bands": bands, "origins": _origins(served, asked),
                        **_coefficients(costs)}
        told.append(f"{where[name]}: {served.kv_tokens} tokens of KV cache; the coefficients give the composed "
                    f"times of iterations to {fit.median:.1%} (median), {fit.p90:.1%} (P90)")
    seen = any(one.endswith(f" {asked.gpu}") for one in shipped_servers())
    none = "" if seen else f", none of them on {asked.gpu},"
    told.append(f"of ten measured servers{none} nine had a TTFT of {bands.ttft.low:.2g} to {bands.ttft.high:.2g} times "
                f"the prediction, and a TPOT of {bands.tpot.low:.2g} to {bands.tpot.high:.2g} times")
    source = (f"{asked.name} in {asked.precision} under {asked.server}, composed of "
              f"{(asked.laws or shipped_operators()[asked.gpu]).source}")
    with refused("import operators"):
        data = TokenModels(
            version=1, kind="tokens", name=f"{asked.name}-{gpu}", gpu=gpu, source=source,
            engine=limits.model_copy(update={
                name: getattr(asked.software, name) for name in ("prompts_alone", "scheduled_ahead")}),
            models={asked.name: {"context_tokens": asked.decoder.context_tokens, "precision": asked.precision,
                                 "kv_precision": asked.kv_precision, "slices": slices}})
    notes = [f"warning: extrapolated: {reason}; the bands are {WIDER:g} times wider" for reason in beyond]
    notes += [f"warning: left out: {asked.name} in {asked.precision} leaves no room for KV cache on {where[name]}"
              for name in small]
    return Composed(data, tuple(told), tuple(notes))


def _coefficients(costs: TokenCosts) -> dict[str, float]:
    named = {("active_part" if name == "active" else f"{name}_ms"): value for name, value in costs._asdict().items()}
    return {name: float(f"{value:.{DIGITS}g}") for name, value in named.items() if value}


def _beyond(one: Decoder) -> list[str]:
    """Lines on how a decoder differs from the decoders to which laws were fitted; empty if it does not."""
    reasons = []
    if one.head_dim not in USUAL_HEADS:
        reasons.append(f"heads of {one.head_dim}, fitted were {' and '.join(map(str, USUAL_HEADS))}")
    if max(one.hidden, one.heads * one.head_dim) > WIDEST:
        reasons.append(f"matrices of {one.hidden}, fitted were those up to {WIDEST}")
    return reasons


def _origins(served: Served, asked: Asked) -> dict[str, Origin]:
    """The origin of each coefficient: the laws from which most of it is composed."""
    gpu = served.operators
    products, decode = gpu.gemm[served.gemm_precision].residual, gpu.decode[served.kv_precision].residual
    prefill = gpu.prefill[served.kv_precision].residual
    of = {"step": ("matrix products and element-wise work", products), "weights": ("matrix products", products),
          "token": ("matrix products", products), "several": ("attention of decoding sequences", decode),
          "sequence": ("attention of decoding sequences", decode), "context": ("KV caches read", decode),
          "prefill": ("attention of prompts", prefill), "attended": ("attention of prompts", prefill)}
    if asked.decoder.experts:
        of |= {"experts": ("experts read", gpu.experts[served.precision].residual)}
    found = {f"{name}_ms": Origin(source=f"{what}: {gpu.source}",
                                  band=Band(low=round(1 / (1 + one.p90), 3), high=round(1 + one.p90, 3)))
             for name, (what, one) in of.items()}
    for name in ("request_ms", "delivery_ms"):
        found[name] = Origin(source=asked.software.bands.source, band=asked.software.bands.ttft)
    return found
