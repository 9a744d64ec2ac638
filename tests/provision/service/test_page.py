"""The page in a real browser: Debian's Chromium, driven by Playwright."""

import json
import re
import shutil
from pathlib import Path

import pytest
from served import Client, served

import provision
from provision.cli import main
from provision.cluster.journal import Decision, Journal

READABLE = (Path(__file__).parents[2] / "support/readable.js").read_text()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 120_000
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; apt-get install chromium")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page")) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="no playwright; pip install playwright")
    with driver.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser, url):
    """The page, opened; whatever it complains about fails the test."""
    context = browser.new_context(accept_downloads=True, viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    complaints = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if "Content Security Policy" in said.text else None)
    elsewhere = []
    opened.on("request", lambda asked: elsewhere.append(asked.url))
    opened.goto(url)
    opened.wait_for_selector("#instance-facts:not(:empty)")
    yield opened
    assert complaints == [] and all(one.startswith((url, f"blob:{url}", "data:")) for one in elsewhere)
    context.close()


def plan(page, instance, method="auto"):
    page.select_option("#instance", instance)
    page.select_option("#method", method)
    page.click("#solve")
    page.wait_for_selector("#result:not([hidden])")
    page.wait_for_selector("#solve:not([disabled])")


def test_decisions_of_a_watch_are_shown(browser, tmp_path):
    journal = Journal(tmp_path / "j.db", "two")
    journal.add(Decision(action="change", why="see: rates are beyond what the plan carries", outcome="applied", gpus=1,
                         gpus_then=3))
    with served(tmp_path, journal=str(tmp_path / "j.db")) as address:
        opened = browser.new_page()
        opened.goto(address)
        opened.wait_for_selector("#decisions:not([hidden])", timeout=WAIT_MS)
        assert [cell.inner_text() for cell in opened.query_selector_all("#decisions td")] == [
            "change", "1", "3", "applied", "see: rates are beyond what the plan carries"]
        opened.close()


def test_from_opening_to_a_proven_drawn_plan(page):
    plan(page, "parvagpu-s3")
    best = provision.solve(provision.read("parvagpu-s3"))
    told = page.inner_text("#drawing")
    for words in ("Proven: no plan costs less", "the plan holds", f"{best.report.cost_per_hour:.2f} $"):
        assert words in told
    assert page.locator("#drawing .gpu").count() > 0
    assert page.locator("#drawing tbody tr").count() == len(provision.read("parvagpu-s3").workloads)
    assert "latency left" in page.inner_text("#drawing thead")
    assert "#job=" in page.url


def test_shares_under_mps_are_drawn(page):
    plan(page, "igniter-motivation", "igniter")
    assert re.search(r"SM \d+%", page.inner_text("#drawing"))


def test_form_says_what_is_wrong_at_the_field(page):
    page.click("#edit")
    page.fill("[data-field='workloads[0].slo_ms']", "soon")
    page.click("#editor button[type=submit]")
    field = page.wait_for_selector("[data-field='workloads[0].slo_ms'][aria-invalid]")
    assert "number" in page.inner_text(f"#{field.get_attribute('id')}-problem")
    page.fill("[data-field='workloads[0].slo_ms']", "900")
    page.fill("[data-field='name']", "edited")
    page.click("#editor button[type=submit]")
    page.wait_for_selector("#status:has-text('edited is stored')")
    assert "edited" in page.inner_text("#instance option:checked")


def test_an_uploaded_file_is_read_as_strictly_as_files_are(page, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nname: a\nname: b\n")
    page.set_input_files("#upload", str(bad))
    page.wait_for_selector("#form-problem:has-text('stands twice')")
    good = tmp_path / "good.json"
    instance = provision.read("parvagpu-s1").replace(name="uploaded").model_dump(mode="json", exclude_none=True)
    good.write_text(json.dumps(instance))
    page.set_input_files("#upload", str(good))
    page.wait_for_selector("#status:has-text('uploaded is stored')")


def test_questions_about_a_plan(page):
    plan(page, "parvagpu-s3")
    page.fill("#values", "1:1.2:0.1")
    page.click("#what-if")
    page.wait_for_selector("#what-if-result svg")
    assert "next GPU is due" in page.inner_text("#what-if-result")
    page.click("#prices")
    page.wait_for_selector("#what-if-result caption:has-text('one more request')")
    page.click("#drawing tbody button >> nth=0")
    page.wait_for_selector("#why li:has-text('At the margin one more request/s costs')")
    page.wait_for_selector("#why li:has-text('What it costs: ')", timeout=60_000)
    why = page.inner_text("#why")
    assert "stands where it does" in why and "requests/s" in why and "GPU is due" in why and "a tenth more" in why
    page.fill("#replay-seconds", "2")
    page.click("#replay")
    page.wait_for_selector("#replay-result .p99")
    page.set_input_files("#demand", {"name": "d.csv", "mimeType": "text/csv",
                                     "buffer": b"time_s,workload,rate_rps\n0,bert,40\n60,bert,90\n"})
    page.click("#day")
    page.wait_for_selector("#replay-result svg")
    plan(page, "parvagpu-s3", "parvagpu")
    page.click("#compare")
    page.wait_for_selector("#compare-result .side-by-side .gpu")
    assert "$ per hour" in page.inner_text("#compare-result li >> nth=0")


def test_many_gpus_are_a_map_with_rows_on_demand(page, url):
    result = Client(url).run({"verb": "solve", "instance": "parvagpu-s5-x30", "method": "greedy"})
    id = Client(url).call("GET", "/api/v1/jobs?limit=1")["jobs"][0]["id"]
    page.goto(f"{url}/#job={id}")
    page.wait_for_selector(f"#drawing svg[aria-label='map of {result['gpus']} GPUs, coloured by workload']")
    rows = page.locator("#drawing .gpu")
    few = rows.count()
    page.click("#drawing button:has-text('row')")
    assert few == 60 < rows.count()
    page.fill("#drawing input[type=search]", "vgg19-7")
    assert page.locator("#drawing tbody tr").count() == 1


def test_by_keyboard_and_by_names(page):
    """Everything on the way to a plan and its reasons is reached by Tab, and has a name for a screen reader."""
    def tab_to(name):
        for _ in range(80):
            page.keyboard.press("Tab")
            here = page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText || ''")
            if here.strip().startswith(name):
                return
        raise AssertionError(f"{name} is not reached")

    tab_to("Plan")
    page.keyboard.press("Enter")
    page.wait_for_selector("#result:not([hidden])")
    page.wait_for_selector("#solve:not([disabled])")
    for role, name in (("button", "Plan"), ("table", "Workloads"), ("combobox", "Method"), ("region", "GPUs")):
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name
    assert page.get_by_role("img", name="a100-80gb: ").count() > 0
    tab_to("why ")
    page.keyboard.press("Enter")
    page.wait_for_selector("#why-title:focus")


def test_downloads(page, tmp_path):
    plan(page, "parvagpu-s1", "greedy")
    for button, ending in (("#report", ".html"), ("#plan-file", ".json"), ("#export", ".zip")):
        with page.expect_download() as found:
            page.click(button)
        path = tmp_path / found.value.suggested_filename
        found.value.save_as(path)
        assert path.suffix == ending and path.stat().st_size > 200
        if ending == ".html":
            text = path.read_text()
            assert "<h2>Proof</h2>" in text and not re.search(r'(src|href)="(?!#)', text)


def test_a_token_is_asked_for(browser, tmp_path):
    token = "a-token-of-sixteen-letters"
    with served(tmp_path, token=token) as url:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(url)
        page.fill("#token", token)
        page.click("#token-dialog button")
        page.wait_for_selector("#instance-facts:not(:empty)")
        assert Client(url, token).methods()
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_readable_everywhere(browser, url, width, scheme):
    """Nothing sticks out, every control has a name, text stands out from its ground (WCAG: 4.5 to 1)."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(url)
    page.wait_for_selector("#instance-facts:not(:empty)")
    plan(page, "parvagpu-s3", "greedy")
    page.click("#edit")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(READABLE) == {"nameless": [], "faint": []}
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    page.close()



def test_an_instance_is_uploaded_with_its_data(page, tmp_path):
    (tmp_path / "search.csv").write_text("batch,latency_ms\n1,3.1\n4,8.7\n8,16.4\n")
    assert main(["init", str(tmp_path), "--gpu", "l4", "--yes"]) == 0
    files = [str(tmp_path / name) for name in ("instance.yaml", "measured.yaml")]
    page.set_input_files("#upload", files[:1])
    page.wait_for_selector("#form-problem:has-text('measured.yaml')")
    page.set_input_files("#upload", files)
    page.wait_for_selector(f"#status:has-text('{tmp_path.name} is stored')")
    assert "1 workload" in page.inner_text("#instance-facts")
