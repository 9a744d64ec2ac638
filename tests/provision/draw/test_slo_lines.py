"""The list of SLOs: one mark for what is kept, one for what only the worst replay missed, one for what is missed."""

from io import StringIO

from rich.console import Console

from provision.draw.verdict import SloLine, slo_table


def test_every_slo_has_a_mark_and_a_margin():
    lines = [SloLine("kept", "P99", 100.0, 80.0), SloLine("chance", "P99", 100.0, 101.0, by_chance=True),
             SloLine("missed", "P99", 100.0, 150.0), SloLine("silent", "P99", 100.0, None)]
    console = Console(width=100, record=True, file=StringIO())
    console.print(slo_table(lines))
    found = {line.split()[1]: line for line in console.export_text().splitlines() if line.strip()}
    assert list(found) == ["silent", "missed", "chance", "kept"]
    assert [line[0] for line in found.values()] == ["✗", "✗", "~", "✓"]
    assert found["kept"].rstrip().endswith("P99 80 of 100 ms") and "50.0% over" in found["missed"]
    assert "in the worst replay, not over all" in found["chance"]
