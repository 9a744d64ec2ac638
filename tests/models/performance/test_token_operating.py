"""The highest rate under an SLO of tokens, checked by replays with arrivals that it was not found with."""

import pytest

from provision.models.fitting.tokens import TYPICAL
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.operating import TokenSlo, highest_rate_rps, late_requests
from provision.models.performance.tokens.records import Engine

PROMPT, OUTPUT = TokenCounts.uniform(512, 1536), TokenCounts.uniform(128, 384)
ENGINE = Engine(kv_blocks=27_000)


@pytest.mark.parametrize("limits", [{"ttft_ms": 500, "tpot_ms": 30}, {"e2e_ms": 5000}, {"ttft_ms": 80}])
def test_rate_keeps_its_slo_under_other_arrivals(limits):
    slo = TokenSlo(**limits)
    rate = highest_rate_rps(PROMPT, OUTPUT, slo, ENGINE, TYPICAL)
    shares = [late_requests(rate, PROMPT, OUTPUT, slo, ENGINE, TYPICAL, seed).mean() for seed in (7, 8, 9)]
    assert rate > 1 and sum(shares) / 3 <= 0.01
    assert late_requests(1.6 * rate, PROMPT, OUTPUT, slo, ENGINE, TYPICAL, 7).mean() > 0.01


def test_stricter_slo_and_slower_engine_carry_less():
    rates = [
        highest_rate_rps(PROMPT, OUTPUT, TokenSlo(ttft_ms=500, tpot_ms=tpot_ms), ENGINE, costs)
        for tpot_ms, costs in ((50, TYPICAL), (20, TYPICAL), (20, TYPICAL._replace(token=2 * TYPICAL.token)))
    ]
    assert rates == sorted(rates, reverse=True)


def test_nothing_keeps_less_than_an_iteration():
    assert highest_rate_rps(PROMPT, OUTPUT, TokenSlo(tpot_ms=5), ENGINE, TYPICAL) == 0


def test_slo_needs_a_limit():
    with pytest.raises(ValueError, match="at least one of"):
        TokenSlo()
