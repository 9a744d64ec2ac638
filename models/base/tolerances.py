"""Every tolerance that decides whether a plan holds and what a bound may claim, from the finest to the coarsest.

Their order matters. Planning allows less excess than the verifier does, so that the verifier accepts every plan. Bounds
allow more excess than the verifier does, so that no plan which it accepts beats a bound: LOOSE covers three of its
comparisons in a row (rates, throughputs, shares), FORGIVEN covers sums of many. Answers of solvers are less exact than
that; before a bound is claimed from one, SOLVER is subtracted. All are relative, except CLOCK_MS, which only replays
use.
"""

DUST = 1e-12
"""Rounding error of sums of floating-point numbers: a plan that meets a limit exactly must pass."""
STRICT = 1e-10
"""Excess that planning with temporal sharing (gpu-lets) allows; the verifier allows a little more."""
TOLERANCE = 1e-9
"""Excess that the verifier takes for rounding. A value that misses its bound by no more than this has met it."""
MISSING = 1.2e-9
"""Fraction of a workload's rate that a bound lets a plan miss; more than the verifier allows."""
BOUNDARY = 1.5e-9
"""A replica counts as carrying a rate when it misses at most this fraction of it: MISSING and a little more."""
LOOSE = 3e-9
"""Excess over SLOs, rates and shares that bounds allow: what three of the verifier's comparisons in a row can add up
to."""
FORGIVEN = 1e-8
"""Excess that bounds allow where many tolerances add up, and when they round to whole numbers."""
SETTLED = 1e-7
"""Relative distance of a bound from a linear program at which columns add nothing to it."""
SINGLE = 1e-6
"""Rounding error of numbers in single precision, such as the memory in tables that kernels search."""
SOLVER = 1e-6
"""Error of solvers of linear and integer programs: subtracted from bounds, and allowed to relaxations."""
THROUGHPUT_CLOSE = 2e-6
"""Distance from its bound at which a throughput counts as proven. A bound on throughput keeps the solver's error; a
bound on a number of GPUs loses it by rounding."""
RELAXED = 1e-5
"""Fraction by which rows of a relaxation are loosened, and by which rates are raised after a solver let a plan miss."""
CLOCK_MS = 1e-5
"""Excess over an SLO that counts as rounding in a replay, in ms: its clock rounds arrivals, delays and batch times to
whole nanoseconds."""
