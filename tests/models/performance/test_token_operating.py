"""The highest rate under limits of tokens, checked by replays with arrivals that it was not found with."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.models.fitting.tokens import TYPICAL
from provision.models.performance.tokens import operating
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.operating import answers_ms, highest_rate_rps, late_shares
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.requests import Limits, TokenSlo
from provision.models.traffic.arrivals import POISSON, Renewal

PROMPT, OUTPUT = TokenCounts.uniform(512, 1536), TokenCounts.uniform(128, 384)
ENGINE = Engine(kv_blocks=27_000)
SHORT = TokenCounts.uniform(16, 64), TokenCounts.uniform(1, 16)


def late(rate, limits, seed, arrivals=POISSON):
    """The largest of the parts of requests that are over a limit."""
    return late_shares(answers_ms(rate, PROMPT, OUTPUT, ENGINE, TYPICAL, arrivals, seed), limits).max()


@pytest.mark.parametrize("limits", [{"ttft_ms": 500, "tpot_ms": 30}, {"e2e_ms": 5000}, {"ttft_ms": 90}])
def test_rate_keeps_its_limits_under_other_arrivals(limits):
    limits = Limits(**limits)
    rate = highest_rate_rps(PROMPT, OUTPUT, limits, ENGINE, TYPICAL)
    assert rate > 1 and sum(late(rate, limits, seed) for seed in (7, 8, 9)) / 3 <= 0.01
    assert late(1.6 * rate, limits, 7) > 0.01


def test_bursts_carry_less_and_keep_their_limits():
    limits, bursts = Limits(ttft_ms=500), Renewal(cv=3.0)
    rate = highest_rate_rps(PROMPT, OUTPUT, limits, ENGINE, TYPICAL, bursts)
    assert 1 < rate < highest_rate_rps(PROMPT, OUTPUT, limits, ENGINE, TYPICAL)
    assert late(rate, limits, 9, bursts) <= 0.01


@settings(max_examples=2)
@given(st.floats(5, 60), st.floats(1.3, 3), st.sampled_from(["ttft_ms", "tpot_ms", "e2e_ms"]))
def test_looser_limits_and_a_faster_engine_carry_no_less(limit_ms, factor, which):
    """Up to the resolution of the rates, which are found by replays."""
    limits = Limits(**{which: limit_ms if which != "e2e_ms" else 20 * limit_ms})
    slower = TYPICAL._replace(**{name: getattr(TYPICAL, name) * factor for name in ("step", "weights", "token")})
    rate = highest_rate_rps(*SHORT, limits, ENGINE, TYPICAL)
    assert rate <= 1.03 * highest_rate_rps(*SHORT, limits.scaled(factor), ENGINE, TYPICAL)
    assert highest_rate_rps(*SHORT, limits, ENGINE, slower) <= 1.03 * rate


def test_a_percentile_that_asks_less_carries_more():
    rates = [highest_rate_rps(PROMPT, OUTPUT, Limits(ttft_ms=100, percentile=asked), ENGINE, TYPICAL)
             for asked in (99, 50)]
    assert rates == sorted(rates) and rates[0] < rates[-1]


def test_nothing_keeps_less_than_an_iteration():
    assert highest_rate_rps(PROMPT, OUTPUT, Limits(tpot_ms=5), ENGINE, TYPICAL) == 0


def test_no_more_is_found_than_asked_for():
    assert highest_rate_rps(PROMPT, OUTPUT, Limits(ttft_ms=500), ENGINE, TYPICAL, most_rps=2.0) == pytest.approx(2, .03)


def test_slo_needs_a_limit():
    with pytest.raises(ValueError, match="at least one of"):
        TokenSlo()


def test_rates_between_one_that_holds_and_one_that_does_not_are_found_to_a_step():
    """Whatever coarse steps down led there."""
    found = operating._highest(lambda rate: rate <= 1.23, 1.0, 1.5)
    assert 1.23 / (1 + operating.STEP) <= found <= 1.23
