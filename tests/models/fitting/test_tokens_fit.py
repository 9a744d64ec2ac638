"""The joint fit of token costs: what it finds predicts loads that it has not seen."""

import pytest

from provision.models.base.errors import InputError
from provision.models.fitting.tokens import TYPICAL, figures_of, fit_tokens
from provision.models.performance.tokens.loads import TokenBenchmark, TokenCounts, TokenLoad
from provision.models.performance.tokens.operating import figures, replay_load
from provision.models.performance.tokens.records import Engine

ENGINE = Engine(kv_blocks=27_000)
TRUTH = TYPICAL._replace(step=2.4, token=0.03, context=6e-5, request=2.0, hiccup=15.0)


def measured(rate_rps, prompt, output, duration_s=60):
    """A benchmark on an engine whose costs are known."""
    load = TokenLoad(
        arrivals="constant", rate_rps=rate_rps, duration_s=duration_s,
        prompt=TokenCounts.uniform(prompt / 2, prompt * 1.5),
        output=TokenCounts.uniform(output / 2, output * 1.5),
    )  # fmt: skip
    ttft, itl = figures(replay_load(load, ENGINE, TRUTH, seed=5))
    return TokenBenchmark(name=f"{prompt}-{output}", load=load, rate_rps=rate_rps, ttft=ttft, itl=itl)


def test_predicts_a_shape_that_it_has_not_seen():
    shapes = [(rate, 256, 128) for rate in (2, 10, 20)] + [(rate, 2048, 512) for rate in (0.5, 2, 4)]
    fit = fit_tokens([measured(*shape) for shape in shapes], ENGINE)
    unseen = measured(6, 1024, 256, duration_s=600)  # a P99 of few requests would be chance
    for seen, truth in zip(figures_of(unseen, fit), (unseen.ttft, unseen.itl), strict=True):
        assert seen.mean == pytest.approx(truth.mean, rel=0.04)
        assert seen.percentiles[99] == pytest.approx(truth.percentiles[99], rel=0.1)


def test_needs_a_load_and_times():
    bare = measured(2, 256, 128).model_copy(update={"load": None})
    with pytest.raises(InputError, match="no benchmark tells both"):
        fit_tokens([bare], ENGINE)
    with pytest.raises(InputError, match="nothing to replay"):
        figures_of(bare, (TYPICAL, ENGINE))
