"""Certificates prove what they claim, to a small program without a solver, and nothing that is not so."""

import ast
import json
import math
import sys
from itertools import product
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision import proofs
from provision.cli import main
from provision.models.performance.igniter import solo_terms, together
from provision.proofs.check import Facts, check
from provision.proofs.demand import Cut, Pool, affordable, least_price
from provision.proofs.lines import HardError, RefusedError, sealed
from provision.proofs.sharing import Sharing
from provision.solving.certificate import certificate_of

AUDIT = Path(__file__).parents[4] / "shared/data/audit/v4/cert"
ROOM = Path(proofs.__file__).parent
MOST_LINES = 600
NAMES = ("parvagpu-s1", "parvagpu-s5", "igniter-motivation", "igniter-testbed-12")


@pytest.fixture(scope="module")
def written():
    """Certificates by the name of their instance."""
    return {name: certificate_of(provision.read(name), 20) for name in NAMES}


def fields_of(certificate):
    """The claims of a certificate, without seals."""
    claims = [json.loads(text) for text in certificate.lines]
    for one in claims:
        del one["seal"]
    return claims


def refused(instance, claims):
    """Why claims are refused; None if they hold."""
    try:
        check(instance, list(sealed(claims)))
    except RefusedError as error:
        return str(error)
    return None


def test_the_checker_is_small():
    texts = [path.read_text() for path in ROOM.glob("*.py")]
    assert sum(bool(line.strip()) for text in texts for line in text.splitlines()) <= MOST_LINES


def test_the_checker_imports_models_alone():
    named = set()
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named.add(node.module)
            elif isinstance(node, ast.Import):
                named |= {one.name for one in node.names}
    own = {name for name in named if name.startswith("provision")}
    assert all(name.startswith(("provision.models.", "provision.proofs.")) for name in own)
    assert {name.split(".")[0] for name in named - own} <= {*sys.stdlib_module_names, "numpy"}


def test_checking_loads_no_solver_and_no_search(written, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(written["parvagpu-s1"].lines))
    code = ("import sys; from provision.cli import main; "
            f"assert main(['check-proof', 'parvagpu-s1', {str(path)!r}]) == 0; "
            "print([name for name in sys.modules if name.split('.')[0] in ('ortools', 'pulp') or "
            "name.startswith(('provision.formulations', 'provision.heuristics', 'scipy.optimize'))])")
    told = run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0].startswith("proven: no plan of parvagpu-s1 has less than 10.24") and told[-1] == "[]"


@pytest.mark.parametrize(("name", "bound"), [("parvagpu-s1", 10.24), ("parvagpu-s5", 61.44),
                                             ("igniter-motivation", 3.06), ("igniter-testbed-12", 18.36)])
def test_shipped_instances_are_certified_at_their_optimum(written, name, bound):
    assert float(check(provision.read(name), written[name].lines)) == written[name].bound == pytest.approx(bound)


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_line_is_named(written, name):
    instance, lines = provision.read(name), written[name].lines
    for at, text in enumerate(lines):
        digit = max(place for place, sign in enumerate(text[: text.index('"seal"')]) if sign.isalnum())
        other = "7" if text[digit] != "7" else "3"
        changed = [*lines[:at], text[:digit] + other + text[digit + 1 :], *lines[at + 1 :]]
        with pytest.raises(RefusedError, match=f"^line {at + 1}: "):
            check(instance, changed)
    for at in range(1, len(lines)):
        with pytest.raises(RefusedError, match=rf"^line {min(at + 1, len(lines) - 1)}: "):
            check(instance, lines[:at] + lines[at + 1 :])


@pytest.mark.parametrize("name", ["parvagpu-s1", "igniter-motivation"])
def test_false_claims_with_true_seals_are_refused(written, name):
    instance, claims = provision.read(name), fields_of(written[name])
    assert refused(instance, claims) is None

    def told(at, **changes):
        """Why the claims are refused when one says something else."""
        return refused(instance, [*claims[:at], claims[at] | changes, *claims[at + 1 :]])

    for at, one in enumerate(claims):
        line = f"line {at + 1}: "
        if "needs" in one:
            assert told(at, needs=one["needs"] + 1).startswith(line)
        elif "most" in one:
            assert told(at, most=one["most"] - 1).startswith(line)
        elif "cut" in one:
            assert told(at, cut=one["cut"] + 1).startswith(line)
        elif "units" in one:
            assert told(at, units=one["units"] + 1, bound=one["bound"]).startswith(line)
            assert told(at, bound="999").startswith(line)
    for at, one in enumerate(claims):
        if "slice" in one and one["price"]:
            assert told(at, price=3 * one["price"]) is not None
        for field, value in (("slice", ["a", "b"]), ("workload", "nobody"), ("gpu", "h100"), ("certificate", 2)):
            if field in one:
                assert told(at, **{field: value}).startswith(f"line {at + 1}: ")
        for field in {"price", "needs", "most", "cut", "units"} & one.keys():
            for value in (-1, 1.5, "1", None, True, 2**63, 10**30, math.nan, math.inf, [], [1]):
                assert told(at, **{field: value}).startswith(f"line {at + 1}: ")
        if one.get("steps"):
            for steps in ([[5]], "x", [[5, 2], [4, 3]], [[1, 5], [2, 4]], 7, [[math.nan, 1]], [[math.inf, 1]],
                          [[1, 2**62]], [["1", 1]], [[1, "1"]], [[True, 1]], [[-1, 1]], [[1, 1.5]]):
                assert told(at, steps=steps).startswith(f"line {at + 1}: ")


def test_a_price_of_replicas_that_was_raised_is_refused(written):
    instance, claims = provision.read("igniter-testbed-12"), fields_of(written["igniter-testbed-12"])
    at = next(at for at, one in enumerate(claims) if one.get("steps"))
    raised = claims[at]["needs"] // 10
    claims[at] = claims[at] | {"needs": claims[at]["needs"] + raised, "steps": [
        [rate, price + raised] for rate, price in claims[at]["steps"]]}
    assert "a GPU of v100 may be worth" in refused(instance, claims)


def test_a_certificate_of_another_instance_is_one_line(written, tmp_path, capsys):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(written["parvagpu-s1"].lines))
    assert main(["check-proof", "parvagpu-s5", str(path)]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "the certificate is of parvagpu-s1" in told[0]
    path.write_text("")
    assert main(["check-proof", "parvagpu-s1", str(path)]) == 2
    assert "is no certificate" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["parvagpu-s1-shared", "inss", "mlperf-llama-3.1-8b-server"])
def test_instances_without_certificates_are_refused_before_the_search(name, tmp_path, capsys):
    assert main(["solve", name, "--certificate", str(tmp_path / "c.jsonl")]) == 2
    assert "there are no certificates for" in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()


def test_tiers_and_types_are_certified():
    fleet = [{"gpu": "a100-80gb", "price_per_hour": 0.9, "count": 2}, {"gpu": "a100-80gb", "price_per_hour": 5.12},
             {"gpu": "a100-80gb", "mig": False, "price_per_hour": 4.0}]
    instance = provision.read("parvagpu-s3").replace(fleet=fleet)
    assert float(check(instance, certificate_of(instance, 20).lines)) == pytest.approx(2 * 0.9 + 3 * 5.12)


def mixed(workloads, **a100):
    """An instance with A100s in MIG slices and V100s that replicas share."""
    return provision.Instance.model_validate({
        "version": 2, "name": "mixed", "policy": {"latency_budget": "half_slo"},
        "fleet": [{"gpu": "a100-80gb", "price_per_hour": 3.0} | a100, {"gpu": "v100", "price_per_hour": 2.0}],
        "performance": ["parvagpu-a100", "igniter-v100"],
        "workloads": [{"name": name, "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps}
                      for name, model, slo_ms, rate_rps in workloads]})


def test_replicas_without_rate_count_on_shared_gpus():
    """Prices at which a replica without rate costs more in a MIG slice than on a V100."""
    instance = mixed([("r", "resnet50", 60, 400), *((f"z{at}", "vgg19", 150, 0) for at in range(6))])
    facts = Facts(instance)
    prices = {(pool.name, profile): 100 for pool, profile in facts.slices}
    assert facts.needs("z0", prices, ()) == 0 and facts.needs("z0", prices, [(0.0, 26)]) == 26
    assert facts.needs("z0", prices, [(0.0, 26), (50.0, 900)]) == 26 and facts.needs("z0", prices, [(5.0, 26)]) == 0
    found = provision.solve(instance, time_limit_s=10, replay=False)
    assert certificate_of(instance, 5).bound <= found.objective


def test_a_model_without_data_on_the_shared_gpu_is_certified():
    instance = mixed([("a", "alexnet", 40, 400), ("b", "vgg16", 100, 90)], count=9)
    certificate = certificate_of(instance, 2)
    assert float(check(instance, certificate.lines)) == certificate.bound


def test_a_certificate_is_not_what_an_error_of_the_checker_makes_it(monkeypatch):
    """The search computes what workloads need, too, and the lesser number is claimed."""
    instance = provision.read("parvagpu-s1")
    real = Facts.needs
    monkeypatch.setattr(Facts, "needs", lambda self, *given: 2 * (real(self, *given) or 0))
    lines = certificate_of(instance, 5).lines
    monkeypatch.undo()
    assert float(check(instance, lines)) <= 10.24


def test_numbers_of_which_there_are_too_many_are_refused_soon():
    """Forged numbers with which more GPUs would have to be tried than there is time for."""
    pools = [Pool(None, [(1, None)], ((1,),)), Pool(None, [(1, None)], ((1,),))]
    with pytest.raises(HardError):
        affordable(pools, [Cut(2**53, (2, 0)), Cut(2**53, (0, 2))], 2**53 - 1)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"seal": "x", "a": ' + "[" * 10**5, "7", "null", '{"seal": 1}',
                                  '{"certificate": ' + "9" * 10**4 + "}"])
def test_a_line_that_is_no_claim_is_named(written, text):
    lines = written["parvagpu-s1"].lines
    with pytest.raises(RefusedError, match=r"^line 3: "):
        check(provision.read("parvagpu-s1"), [*lines[:2], text, *lines[3:]])


def test_solve_writes_what_check_proof_accepts(tmp_path, capsys):
    path = tmp_path / "c.jsonl"
    assert main(["solve", "parvagpu-s1", "--time-limit", "20", "--certificate", str(path)]) == 0
    assert "it proves 10.24 $ per hour" in capsys.readouterr().out
    assert main(["check-proof", "parvagpu-s1", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"instance": "parvagpu-s1", "proven": True, "bound": 10.24, "why": ""}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2), st.integers(0, 15), st.integers(0, 3),
       st.none() | st.integers(3, 5))
def test_the_least_price_is_that_of_every_set(replicas, asked, least, most):
    """Against all numbers of replicas, those that carry nothing included."""
    found = [sum(many * price for many, (_, price) in zip(several, replicas, strict=True))
             for several in product(range(17), repeat=len(replicas)) if least <= sum(several) <= (most or math.inf)
             and sum(many * rate for many, (rate, _) in zip(several, replicas, strict=True)) >= asked]
    assert least_price(least, most, asked, replicas) == min(found, default=None)


def test_a_price_of_too_many_sets_is_a_lower_bound():
    draw = np.random.default_rng(0)
    replicas = [(int(rate), int(rate * 7 + draw.integers(0, 9000))) for rate in draw.integers(900, 10**6, 400)]
    rate, price = min(replicas, key=lambda one: one[1] / one[0])
    found = least_price(1, None, 10**12 + 7, replicas)
    assert (10**12 + 7) * price / rate <= found * (1 + 1e-12) and found <= -(-(10**12 + 7) // rate) * price


@settings(max_examples=100)
@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 3)), min_size=1, max_size=2),
                min_size=1, max_size=3), st.data(), st.integers(0, 20))
def test_affordable_is_what_counting_finds(tiers, data, units):
    pools = [Pool(None, sorted(one, key=lambda tier: tier[0]), ((1,),)) for one in tiers]
    cuts = [Cut(data.draw(st.integers(-2, 12)), tuple(data.draw(st.integers(0, 4)) for _ in pools)) for _ in range(2)]

    def price(pool, many):
        total = 0
        for each, count in pool.tiers:
            taken = many if count is None else min(many, count)
            total, many = total + each * taken, many - taken
        return math.inf if many else total

    found = any(sum(price(pool, one) for pool, one in zip(pools, many, strict=True)) <= units
                and all(sum(a * b for a, b in zip(cut.most, many, strict=True)) >= cut.needed for cut in cuts)
                for many in product(range(13), repeat=len(pools)))
    assert affordable(pools, cuts, units) == found


@pytest.mark.parametrize("seed", range(3))
def test_no_pair_of_replicas_is_worth_more(seed):
    """Every pair of operating points on a V100, by the model's arrays, against the checker's search."""
    draw, instance = np.random.default_rng(seed), provision.read("igniter-testbed-12")
    chosen = [instance.workloads[at] for at in draw.choice(12, 4, replace=False).tolist()]
    chosen = [one.model_copy(update={"rate_rps": one.rate_rps * draw.uniform(0.3, 0.9)}) for one in chosen]
    prices = {one.name: int(draw.integers(300, 900)) for one in chosen}
    [data] = instance.sharing_files("v100")
    worth = [(one, [(one.rate_rps, prices[one.name])]) for one in chosen]
    units = np.arange(1, data.hardware.units)
    best = 0
    for one, other in product(chosen, repeat=2):
        if one.name < other.name:
            for batches in product((1, 2, 4, 8, 16), repeat=2):
                alone = [solo_terms(data, each.model, batch, share) for each, batch, share in
                         zip((one, other), batches, (units * 0.025, 1 - units * 0.025), strict=True)]
                terms = type(alone[0])(*(np.stack(column, axis=-1) for column in zip(*alone, strict=True)))
                latency_ms, rps = together(data.hardware, terms)
                slos, rates = (np.array([getattr(each, name) for each in (one, other)])
                               for name in ("slo_ms", "rate_rps"))
                if ((latency_ms <= slos / 2) & (rps >= rates)).all(axis=1).any():
                    best = max(best, prices[one.name] + prices[other.name])
    found = Sharing(instance, data, 2, worth).most(0)
    assert found >= best > 0
    assert found <= sum(sorted(prices.values())[-2:])


@pytest.mark.parametrize(("instance", "certificate"), [
    ("two", "forged-overflow"), ("zero", "forged-zero"), ("zero7", "zero7"), ("ig3", "ig3-2e60"), ("ig3", "ig3-2e62"),
    ("ig3", "ig3-1e30"), ("ig3", "ig3-inf"),
])
def test_audited_certificates_of_false_bounds_are_refused_in_a_line(instance, certificate, capsys):
    """Whole numbers that wrapped, replicas without rate that did not count, and what ended the checker by a signal."""
    if not AUDIT.exists():
        pytest.skip("needs the audit's files in shared/data")
    assert main(["check-proof", str(AUDIT / f"{instance}.yaml"), str(AUDIT / f"{certificate}.jsonl")]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("refused: ") and ", line " in line
