"""The list of SLOs: a mark for what is kept, for what only the worst replay missed, for what replays do not decide, and
for what is missed.
"""

from io import StringIO
from types import SimpleNamespace

from rich.console import Console

from provision.draw.verdict import SloLine, problems, slo_table
from provision.models.plans.result import Replay, SloMet


def test_every_slo_has_a_mark_and_a_margin():
    lines = [SloLine("kept", "P99", 100.0, 80.0), SloLine("chance", "P99", 100.0, 101.0, by_chance=True),
             SloLine("open", "P99", 100.0, 110.0, by_chance=True, held=False),
             SloLine("missed", "P99", 100.0, 150.0), SloLine("silent", "P99", 100.0, None)]
    console = Console(width=100, record=True, file=StringIO())
    console.print(slo_table(lines))
    found = {line.split()[1]: line for line in console.export_text().splitlines() if line.strip()}
    assert list(found) == ["silent", "missed", "open", "chance", "kept"]
    assert [line[0] for line in found.values()] == ["✗", "✗", "?", "~", "✓"]
    assert found["kept"].rstrip().endswith("P99 80 of 100 ms") and "50.0% over" in found["missed"]
    assert "1.0% over in the worst replay, held over all" in found["chance"]
    assert "10.0% over in the worst replay, not decided" in found["open"]


def test_what_replays_hold_and_what_they_do_not_decide_is_told_apart():
    slos = (SloMet("chat: TTFT", 99.0, 1500.0, 8880.0, 0.014), SloMet("tags", 99.0, 100.0, 130.0, 0.008))
    replay = Replay(6.0, 3, 0, "chat", 99.0, 5.9, (), {"chat: TTFT": 0.6, "tags": 0.2}, slos)
    held, open_ = problems(SimpleNamespace(status="feasible", report=None, replay=replay, notes=()))
    assert held == "Held over all replays together; single minutes are late by chance: tags 20%"
    assert open_.startswith("Not decided: over all replays together 1.40% of the requests of chat: TTFT are late, ")


def test_names_stay_readable_in_a_narrow_terminal():
    line = SloLine("chat: TTFT", "P99 replayed", 20.0, 20.1, by_chance=True)
    console = Console(width=70, record=True, file=StringIO())
    console.print(slo_table([line]))
    assert "chat: TTFT" in console.export_text() and len(console.file.getvalue().splitlines()) <= 3
