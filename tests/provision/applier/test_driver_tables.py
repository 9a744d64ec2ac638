"""The stand-in beside tables of NVIDIA's documentation and listings: ids, SMs, sizes, placements."""

import re
from pathlib import Path

import pynvml
import pytest
from driver import Node
from driver.layouts import placements

SHEET = Path(__file__).resolve().parents[4] / "shared/reference/mig-mps.md"
TABLES = {"a100-40gb": ("**A100", 0), "a100-80gb": ("**A100", 1), "a30": ("**A30", 0), "h100-80gb": ("**H100", 0)}


def rows(kind):
    """The profiles of a type as the sheet has them: name, (enumerator, id, SMs, most, GiB, placements)."""
    head, column = TABLES[kind]
    text = SHEET.read_text()
    lines = text[text.index(head) :].split("\n\n")[1].splitlines()
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    at = {name: names.index(name) for name in names}
    name = [at[one] for one in names if "ame" in one][column]
    gib = next(at[one] for one in names if one.startswith("GiB"))
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        starts, size = re.fullmatch(r"\{([\d.,]+)\}:(\d)", cells[at["Placements"]]).groups()
        first, _, last = starts.partition("..")
        found = range(int(first), int(last) + 1) if last else map(int, starts.split(","))
        memory = [float(one) for one in cells[gib].split("/")]
        numbers = [int(cells[at[one]].strip("*")) for one in ("enum", "ID", "SMs", "Max")]
        places = [(one, int(size)) for one in found]
        yield cells[name].split()[0], (*numbers, memory[min(column, len(memory) - 1)], places)


@pytest.mark.skipif(not SHEET.exists(), reason="no ../shared/reference/mig-mps.md")
@pytest.mark.parametrize("kind", TABLES)
def test_profiles_are_those_of_the_sheet(tmp_path, kind):
    expected = dict(rows(kind))
    with Node(tmp_path / "node", [kind], mig=True).loaded():
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        for name, (enumerator, *numbers, gib, places) in expected.items():
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enumerator)
            assert info.name == f"MIG {name}"
            assert [info.id, info.multiprocessorCount, info.instanceCount] == numbers, name
            assert info.memorySizeMB / 1024 == pytest.approx(gib, abs=0.01), name
            assert placements(gpu, info.id) == places, name
        pynvml.nvmlShutdown()
    assert len(expected) >= 5
