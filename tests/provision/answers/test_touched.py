"""Which GPU a change of plans touches, with the signs of Terraform."""

from provision.answers.difference import touched
from provision.models.plans.plan import Plan


def _plan(*gpus):
    return Plan(version=1, instance="i", method="m", gpus=[
        {"gpu": "a100-80gb", "mig": True, "slices": [
            {"profile": profile, "start": start, "replicas": [
                {"workload": name, "batch": 8, "processes": 1, "sm_share": 1.0, "rate_rps": 1.0}]}
            for profile, start, name in slices]}
        for slices in gpus])


def test_every_touched_gpu_is_named_with_its_sign():
    before = _plan([("3g.40gb", 0, "a"), ("3g.40gb", 4, "b")], [("1g.10gb", 0, "c")])
    after = _plan([("3g.40gb", 0, "a"), ("2g.20gb", 4, "b")], [("1g.10gb", 0, "c")], [("7g.80gb", 0, "d")])
    assert list(touched(before, after)) == [
        "  ~ GPU 0, a100-80gb: - 3g.40gb (b b8 p1), + 2g.20gb (b b8 p1)", "  + a new a100-80gb: + 7g.80gb (d b8 p1)"]
    assert list(touched(after, before))[-1] == "  - GPU 2, a100-80gb: - 7g.80gb (d b8 p1)"


def test_what_stays_is_not_named():
    plan = _plan([("3g.40gb", 0, "a")])
    assert list(touched(plan, plan)) == []
