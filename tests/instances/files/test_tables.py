"""Tables as people have them: semicolons, decimal commas, a column per workload, dates; and odd measurements."""

import pytest

from provision.cli import main
from provision.instances.files.demand import read_demand
from provision.models.base.errors import InputError

LONG = "time_s,workload,rate_rps\n0,search,12.5\n0,tags,3\n300,search,13\n"


@pytest.mark.parametrize("text, first_s", [
    (LONG, 0),
    (LONG.replace(",", "\t"), 0),
    (LONG.replace(",", ";").replace("12.5", "12,5"), 0),
    ("time_s,search,tags\n0,12.5,3\n300,13,\n", 0),
    ("Time;search;tags\n2026-08-01 00:00:00;12,5;3\n2026-08-01 00:05:00;13;0\n", 1785542400),
    ("timestamp,search,tags\n2026-08-01T00:00:00Z,12.5,3\n2026-08-01T02:05:00+02:00,13,0\n", 1785542400),
    ("date,workload,rate_rps\n2026-08-01,search,12.5\n2026-08-01,tags,3\n2026-08-01 00:05,search,13\n", 1785542400),
], ids=["long", "tabs", "semicolons", "wide", "dates", "zones", "long dates"])
def test_tables_of_rates_are_read_as_they_come(tmp_path, text, first_s):
    (tmp_path / "rates.csv").write_text(text)
    found = read_demand(tmp_path / "rates.csv")
    assert found.workloads == ("search", "tags") and found.times_s.tolist() == [first_s, first_s + 300]
    assert found.rates_rps.tolist() == [[12.5, 3], [13, 0]]


@pytest.mark.parametrize("text, said", [
    ("time_s,workload,rate\n0,a,1\n", "column 'rate_rps' is missing"),
    ("when,a\n0,1\n", "column 'time_s' is missing"),
    ("time,a\n1.8.2026,1\n", "r.csv:2: time '1.8.2026' is neither seconds nor a date and time like 2026-08-01 10:05"),
    ("time,a\n0,many\n", "r.csv:2: a 'many' is not a number"),
    ("time,a\n0,1\n0,2\n", "r.csv:3: 'a' stands twice at 0; keep one row"),
])
def test_rates_that_cannot_be_read_are_told(tmp_path, text, said):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError) as told:
        read_demand(tmp_path / "r.csv")
    assert said in str(told.value)


def _warnings(capsys, tmp_path, text):
    (tmp_path / "m.csv").write_text(text)
    assert main(["import", "csv", str(tmp_path / "m.csv"), "--gpu", "l4", "--out", str(tmp_path / "m.yaml")]) == 0
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]


def test_good_measurements_raise_no_doubt(capsys, tmp_path):
    assert _warnings(capsys, tmp_path, "batch;latency_ms\n1;3,1\n2;4,9\n4;8,7\n8;16,4\n") == []


@pytest.mark.parametrize("text, said", [
    ("batch,latency_ms\n1,0.0031\n8,0.0163\n", "latency_ms 0.0031 is hardly in ms; if it is in seconds"),
    ("batch,latency_ms\n1,310000\n8,900000\n", "if it is in microseconds"),
    ("batch,latency_ms\n1,3\n2,9\n4,5\n", "m, whole, batch 4: takes 5 ms, less than batch 2 with 9 ms"),
    ("batch,latency_ms\n1,3\n2,90\n4,95\n8,97\n", "interpolation between the measured batches is"),
])
def test_measurements_that_look_wrong_are_told_and_taken(capsys, tmp_path, text, said):
    assert any(said in line for line in _warnings(capsys, tmp_path, text))
    assert (tmp_path / "m.yaml").exists()


def test_measurements_of_whole_gpus_that_can_be_partitioned_say_what_to_write(tmp_path, capsys):
    (tmp_path / "m.csv").write_text("batch,latency_ms\n1,3\n4,6\n8,11\n")
    assert main(["import", "csv", str(tmp_path / "m.csv"), "--gpu", "a30", "--out", str(tmp_path / "m.yaml")]) == 0
    head = "version: 2\nname: i\nperformance: [m.yaml]\nworkloads: [{name: w, model: m, slo_ms: 60, rate_rps: 90}]\n"
    for fleet, code in (("{gpu: a30, price_per_hour: 1}", 1), ("{gpu: a30, mig: false, price_per_hour: 1}", 0)):
        (tmp_path / "i.yaml").write_text(f"{head}fleet: [{fleet}]\n")
        assert main(["solve", str(tmp_path / "i.yaml"), "--method", "greedy", "--no-replay"]) == code
        said = "can run m at all; its data is of whole GPUs: write mig: false beside a30"
        assert (said in " ".join(capsys.readouterr().out.split())) == bool(code)
