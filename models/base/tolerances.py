"""All tolerances that decide whether a plan is valid and what a bound may claim, from the finest to the coarsest. Their
order matters. Planning allows less excess than the verifier does, so that the verifier accepts every plan. Bounds allow
more excess than the verifier does, so that no plan that the verifier accepts beats a bound: LOOSE covers three of the
verifier's comparisons in a row (rates, throughputs, shares), FORGIVEN covers sums of many. Answers of solvers are less
exact; SOLVER is subtracted from a solver's answer before it is claimed as a bound. All tolerances are relative, except
CLOCK_MS, which only replays use.
"""

DUST = 1e-12
"""The rounding error of sums of floating-point numbers: a plan that meets a limit exactly must pass."""
STRICT = 1e-10
"""The excess that planning with temporal sharing (gpu-lets) allows; the verifier allows a little more."""
PLANNED = 0.999e-9
"""The fraction of a workload's rate that a plan may miss: what the verifier allows, less the rounding error of sums."""
TOLERANCE = 1e-9
"""The excess that the verifier takes for rounding: a value that misses its limit by no more than this has kept it."""
MISSING = 1.2e-9
"""The fraction of a workload's rate that a bound lets a plan miss; it is more than the verifier allows."""
BOUNDARY = 1.5e-9
"""A replica counts as carrying a rate when it misses at most this fraction of it: MISSING and a little more."""
RESERVED = 1.8e-9
"""The fraction of the highest rate that planning leaves unused under the queueing rule: more than BOUNDARY, so that the
verifier accepts such a replica. With what the verifier lets a rate miss (TOLERANCE) it stays below LOOSE, so that no
plan which uses the whole rate beats a bound.
"""
LOOSE = 3e-9
"""The excess over SLOs, rates and shares that bounds allow: the sum that three of the verifier's comparisons in a row
can reach.
"""
FORGIVEN = 1e-8
"""The excess that bounds allow where many tolerances add up, and when bounds are rounded to whole numbers."""
SETTLED = 1e-7
"""If a bound is closer to the value of the linear program than this relative distance, further columns cannot improve
it.
"""
SINGLE = 1e-6
"""The rounding error of numbers in single precision, such as the memory in tables that kernels search."""
SOLVER = 1e-6
"""The error of solvers of linear and integer programs: it is subtracted from bounds, and relaxations allow it."""
THROUGHPUT_CLOSE = 2e-6
"""The relative distance from its bound within which a throughput counts as proven. A bound on throughput keeps the
solver's error; a bound on a number of GPUs loses it by rounding.
"""
RELAXED = 1e-5
"""The fraction by which rows of a relaxation are loosened, and by which rates are raised after a solver returned a plan
that misses a rate.
"""
CLOCK_MS = 1e-5
"""The excess over an SLO, in ms, that counts as rounding in a replay, whose clock rounds arrivals, delays and batch
times to whole nanoseconds.
"""
