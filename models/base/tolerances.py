"""Every tolerance that decides whether a plan holds and what a bound may claim, from the finest to the coarsest.

They stand in an order. Plans are made to hold within less than the verifier forgives. Bounds grant plans more than the
verifier forgives, so that no plan which it accepts beats a bound: LOOSE covers three of its comparisons in a row
(rates, throughputs, shares), FORGIVEN sums of many. What solvers return is off by more than that; where their answer is
a bound, SOLVER is taken off it first. All are relative but for CLOCK_MS, which is about replays alone.
"""

DUST = 1e-12
"""What sums of floating-point numbers lose; a plan may meet a limit exactly."""
STRICT = 1e-10
"""Excess that plans on gpu-lets' turns allow themselves; the verifier allows a little more."""
TOLERANCE = 1e-9
"""Excess that counts as rounding: the verifier's own. What lacks no more than this of a bound has met it."""
MISSING = 1.2e-9
"""The part of a rate that a bound lets a plan miss; it is more than the verifier tolerates."""
BOUNDARY = 1.5e-9
"""A replica that carries its role's rate less this part still has the role: MISSING and a little more."""
LOOSE = 3e-9
"""Excess over SLOs, rates and shares that bounds grant, after three of the verifier's comparisons."""
FORGIVEN = 1e-8
"""Excess that bounds grant where tolerances add up, and over whole numbers."""
SINGLE = 1e-6
"""What numbers lose that are kept in single precision, such as memory in tables that kernels search."""
SOLVER = 1e-6
"""What solvers of linear and integer programs may be off by: taken off bounds, and given to relaxations."""
THROUGHPUT_CLOSE = 2e-6
"""Distance from its bound at which a throughput counts as proven: such bounds keep the solver's tolerance, which bounds
on GPUs lose by rounding."""
RELAXED = 1e-5
"""What rows of a relaxation are loosened by, and what rates are raised by where a solver let a plan miss a little."""
CLOCK_MS = 1e-5
"""Excess over an SLO, in ms, that counts as rounding in a replay, whose clock counts whole nanoseconds: of arrivals,
delays and batches."""
