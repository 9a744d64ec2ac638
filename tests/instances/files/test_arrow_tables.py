"""Tables of workloads and plans: the same instance and plan as by YAML, and one line for what is wrong."""

import pyarrow as pa
import pytest
import yaml
from pyarrow import feather, parquet

import provision
from provision.cli import main
from provision.instances.files.tables import read_plan_table, read_workloads, write_plan_table, write_workloads
from provision.models.base.errors import InputError
from provision.models.problem.workload import Workload

ROWS = [{"name": "a", "model": "resnet50", "slo_ms": 100.0, "rate_rps": 20},
        {"name": "b", "model": "vgg19", "slo_ms": 150, "rate_rps": 30.5}]


def table(tmp_path, **columns):
    path = tmp_path / "workloads.parquet"
    found = pa.Table.from_pylist(ROWS)
    for name, values in columns.items():
        found = found.drop_columns(name) if name in found.column_names else found
        found = found if values is None else found.append_column(name, values)
    parquet.write_table(found, path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_workloads_come_back(tmp_path, suffix):
    workloads = provision.read("igniter-testbed-12").workloads
    write_workloads(workloads, tmp_path / f"w{suffix}")
    assert read_workloads(tmp_path / f"w{suffix}") == workloads


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("name", ["parvagpu-s1", "igniter-testbed-12"])
def test_plans_come_back(tmp_path, name, suffix):
    plan = provision.solve(name, "greedy", replay=False).plan
    write_plan_table(plan, tmp_path / f"p{suffix}")
    assert read_plan_table(tmp_path / f"p{suffix}") == plan


def test_nodes_of_gpus_come_back(tmp_path):
    plan = provision.solve("parvagpu-s1", "greedy", replay=False).plan
    placed = plan.model_copy(update={"gpus": tuple(
        gpu.model_copy(update={"node": f"n{at}"}) for at, gpu in enumerate(plan.gpus))})
    write_plan_table(placed, tmp_path / "p.parquet")
    assert read_plan_table(tmp_path / "p.parquet") == placed


def test_a_slice_without_replicas_comes_back(tmp_path):
    plan = provision.solve("parvagpu-s1", "greedy", replay=False).plan
    first = plan.gpus[0].slices[0].model_copy(update={"replicas": ()})
    gpu = plan.gpus[0].model_copy(update={"slices": (first, *plan.gpus[0].slices[1:])})
    empty = plan.model_copy(update={"gpus": (gpu, *plan.gpus[1:])})
    write_plan_table(empty, tmp_path / "p.parquet")
    assert provision.read_plan(tmp_path / "p.parquet") == empty


def test_an_instance_names_its_table(tmp_path, capsys):
    plain = provision.read("igniter-testbed-12")
    content = plain.model_dump(mode="json", exclude_none=True)
    write_workloads(plain.workloads, tmp_path / "workloads.parquet")
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(content | {"workloads": "workloads.parquet"}))
    assert provision.read(path).digest == plain.digest
    assert main(["solve", str(path), "--method", "greedy", "--out", str(tmp_path / "plan.parquet")]) == 0
    assert main(["verify", str(path), str(tmp_path / "plan.parquet")]) == 0


@pytest.mark.parametrize("columns, told", [
    ({"slo_ms": None}, "no column 'slo_ms'; it has: name, model, rate_rps"),
    ({"slos": pa.array([1.0, 2.0])}, "unknown column 'slos'.*slo_ms"),
    ({"slo_ms": pa.array(["100", "150"])}, "slo_ms: should be of type number \\(is string\\)"),
    ({"name": pa.array([1, 2])}, "name: should be of type text"),
    ({"min_replicas": pa.array([1.5, 1.0])}, "min_replicas: should be of type whole number"),
    ({"slo_ms": pa.array([100.0, None])}, "slo_ms: row 1 has no value"),
    ({"slo_ms": pa.array([100.0, 0.0])}, "slo_ms: row 1: 0.0 should be a number above 0"),
    ({"rate_rps": pa.array([float("nan"), 1.0])}, "rate_rps: row 0: nan should be a number of at least 0"),
    ({"rate_rps": pa.array([1e-12, 1.0])}, "rate_rps: row 0: should be 0 or at least 1e-09"),
    ({"max_share_per_gpu": pa.array([1.0, 2.0])}, "max_share_per_gpu: row 1: 2.0 should be a number above 0 and at"),
    ({"max_replicas": pa.array([None, 1]), "min_replicas": pa.array([None, 2])}, "max_replicas: row 1: is below"),
    ({"name": pa.array(["a", "a"])}, "name: 'a' stands twice, first in row 0"),
    ({"name": pa.array(["a", ""])}, "name: row 1: '' should be text of 1 to 200 characters"),
    ({"name": pa.array(["a", "b\n"])}, "name: row 1: 'b.n' should be text .* without control characters"),
    ({"model": pa.array(["m" * 201, "vgg19"])}, "model: row 0: .* should be text of 1 to 200 characters"),
])
def test_a_wrong_table_is_one_line(tmp_path, columns, told):
    path = table(tmp_path, **columns)
    with pytest.raises(InputError, match=told) as error:
        read_workloads(path)
    assert len(error.value.lines) == 1 and str(error.value).startswith(str(path))


def test_what_is_no_table_is_one_line(tmp_path):
    path = tmp_path / "w.parquet"
    path.write_text("name,model")
    with pytest.raises(InputError, match="cannot be read as a table"):
        read_workloads(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_workloads(tmp_path / "none.arrow")
    with pytest.raises(InputError, match="has no rows"):
        feather.write_feather(pa.Table.from_pylist(ROWS).slice(0, 0), tmp_path / "empty.feather")
        read_workloads(tmp_path / "empty.feather")


def test_a_table_of_workloads_is_no_plan(tmp_path):
    with pytest.raises(InputError, match="is no table of a plan"):
        provision.read_plan(table(tmp_path))


@pytest.mark.parametrize("change, told", [
    (lambda rows: rows[::-1], "gpu: row 1 comes after later slices; sort rows"),
    (lambda rows: [rows[0] | {"rate_rps": None}, *rows[1:]], "rate_rps: row 0 has no value; fill it"),
    (lambda rows: [rows[0] | {"batch": None}, *rows[1:]], "batch: row 0 has no value; fill it"),
])
def test_a_wrong_plan_table_is_one_line(tmp_path, change, told):
    write_plan_table(provision.solve("parvagpu-s1", "greedy", replay=False).plan, tmp_path / "p.parquet")
    table = parquet.read_table(tmp_path / "p.parquet")
    rows = change(sorted(table.to_pylist(), key=lambda row: (row["gpu"], row["slice"])))
    parquet.write_table(pa.Table.from_pylist(rows, table.schema), tmp_path / "wrong.parquet")
    with pytest.raises(InputError, match=told) as error:
        provision.read_plan(tmp_path / "wrong.parquet")
    assert len(error.value.lines) == 1


def test_whole_numbers_are_rates_too(tmp_path):
    """A column of whole numbers is read as one of fractions: the digest is that of the same instance in YAML."""
    [first, _] = read_workloads(table(tmp_path, slo_ms=pa.array([100, 150]), min_replicas=pa.array([None, 2])))
    assert isinstance(first.slo_ms, float) and first.min_replicas == 1
    assert first.model_dump() == Workload(**ROWS[0]).model_dump()


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("name", ["slo_ms", "rate_rps", "min_replicas", "max_replicas"])
def test_huge_whole_numbers_are_rounded_or_refused_in_a_line(tmp_path, name, value):
    if name in ("slo_ms", "rate_rps"):
        path = table(tmp_path, **{name: pa.array([100, value], pa.uint64())})
        assert getattr(read_workloads(path)[1], name) == float(value)
        return
    with pytest.raises(InputError, match=rf"{name}: row 1: {value} should be .* at most") as error:
        read_workloads(table(tmp_path, **{name: pa.array([100, value], pa.uint64())}))
    assert len(error.value.lines) == 1


def test_a_workload_with_more_fields_is_refused(tmp_path):
    one = provision.read("igniter-variants-12").workloads
    with pytest.raises(InputError, match="has variants, for which tables have no column"):
        write_workloads(one, tmp_path / "w.parquet")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    path = table(tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        write_workloads(provision.read("igniter-testbed-12").workloads, path)
    assert path.read_bytes() == before
