"""The dashboard in a real browser, without a window: what people click, type and see.

Needs playwright (pip install 'burnish[browser]') and a Chromium on the PATH, or BURNISH_CHROMIUM; skipped without them.
With BURNISH_SHOTS=DIR, screenshots of every page are left there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import COIN, function, go, rows

from burnish.report.api import Api
from burnish.report.endpoint import endpoint_for
from burnish.report.server import make_server
from burnish.store.control import order
from burnish.store.environment import process
from burnish.store.reader import open_store
from burnish.store.schema import FILE, connect

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None  # type: ignore[assignment]
CHROMIUM = os.environ.get("BURNISH_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(playwright is None or CHROMIUM is None, reason="there is no playwright, or no Chromium"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def root(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shown")
    reward = function(place / "r.py", COIN, "coin")
    for seed in (0, 1, 2):
        go(
            "grpo",
            small_model,
            place / "runs" / f"grpo-{seed}",
            reward=reward,
            seed=seed,
            n=4,
            eval_tasks=4,
            eval_every=2,
            steps=4,
        )
    go("dapo", small_model, place / "runs" / "dapo", reward=reward, n=2, prompts=4, steps=3)
    return place / "runs"


@pytest.fixture(scope="module")
def few(small_model: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs of the same three questions, again and again, and a run's address."""
    place = tmp_path_factory.mktemp("few")
    reward = function(place / "r.py", COIN, "coin")
    data = rows(place / "d.jsonl", *({"prompt": f"{i} and {i}?", "answer": str(2 * i)} for i in range(3)))
    for seed in (0, 1):
        go("grpo", small_model, root / f"few-{seed}", task=data, reward=reward, seed=seed, n=2, steps=3, prompts=3)
    return "few-0"


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    endpoint = endpoint_for("127.0.0.1", 0, None)
    server = make_server(Api(root), endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield endpoint.url()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page on which any error of the scripts fails the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.set_default_timeout(15_000)
    yield page
    context.close()
    assert not wrong, wrong


def shot(page: Any, name: str) -> None:
    if folder := os.environ.get("BURNISH_SHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=name.endswith("whole"))


def until(page: Any, true: Callable[[], bool]) -> None:
    """Wait for something; the page's own rules forbid the driver's way of waiting, which evaluates text."""
    for _ in range(150):
        if true():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen within 15 seconds")


def test_the_list_of_runs_filters_and_opens(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    assert page.locator("table.runs tbody tr").count() == 4
    shot(page, "runs")
    page.keyboard.press("/")
    page.keyboard.type("dapo")
    assert page.locator("table.runs tbody tr").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_selector("figure.chart svg")
    assert page.locator("h1").first.inner_text() == "dapo"


def test_a_run_shows_curves_health_time_and_answers(page: Any, url: str) -> None:
    page.goto(f"{url}#/run/grpo-0")
    page.wait_for_selector("figure.chart svg")
    titles = page.locator("figcaption .name").all_inner_texts()
    for title in (
        "Reward mean score",
        "Held-out accuracy",
        "Policy entropy nats per token",
        "KL to the reference nats per token",
        "Reply length tokens",
        "Sampling tokens per second",
    ):
        assert title in titles, title
    assert not [title for title in titles if "/" in title or "_" in title], "a raw key is a title"
    assert page.locator(".rooms .room").count() >= 3 and page.locator(".pill.finished").count() == 1
    assert "held out" in page.locator(".tiles").inner_text()
    page.locator("figure.chart svg").first.hover()
    page.wait_for_selector("#tip:not([hidden])")
    assert "step" in page.locator("#tip").inner_text()
    assert page.locator("figcaption").first.get_attribute("title")
    shot(page, "run-whole")


def test_seeds_are_one_line_with_a_band(page: Any, url: str) -> None:
    page.goto(f"{url}#/run/grpo-0")
    page.get_by_text("3 seeds together").click()
    page.wait_for_selector("path.band")
    assert page.locator("figure.chart").first.locator("path.line").count() == 1
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    for row in page.locator("table.runs tbody tr").all():
        row.locator("input").click()
    page.get_by_text("Show 4 together").click()
    page.wait_for_selector("path.band")
    assert page.locator("figure.chart").first.locator("path.line").count() == 2
    shot(page, "together-whole")


def test_curves_are_labelled_by_what_differs(page: Any, url: str, root: Path) -> None:
    """Two methods with other sizes: the labels name them, the table has every option that differs."""
    page.goto(f"{url}#/run/grpo-0+dapo")
    page.wait_for_selector("figure.chart svg")
    labels = page.locator(".entry-of-legend b").all_inner_texts()
    assert labels[0].startswith("grpo, n 4, steps 4") and labels[1].startswith("dapo, n 2, steps 3"), labels
    table = page.locator(".differences")
    table.locator("summary", has_text="What differs").click()
    assert {"method", "n", "prompts", "beta", "refills"} <= set(table.locator("td.dim").all_inner_texts())
    page.locator("figure.chart svg").first.hover()
    page.wait_for_selector("#tip:not([hidden])")
    assert "grpo, n 4" in page.locator("#tip").inner_text()
    page.goto(f"{url}#/run/grpo-0+grpo-1")
    page.wait_for_selector("text=mean and 95% band over 2 seeds")
    assert page.locator(".differences").count() == 0
    shot(page, "differences")


def test_curves_are_zoomed_and_grouped_by_an_option(page: Any, url: str) -> None:
    """Three runs of GRPO and one of DAPO: a line for each n; a drag shows a part of all charts."""
    page.goto(f"{url}#/run/grpo-0+grpo-1+grpo-2+dapo")
    page.wait_for_selector("figure.chart svg")
    page.get_by_label("Group by").select_option("n")
    page.wait_for_selector("text=mean and 95% band over 3 runs")
    assert page.locator(".legend.big b").all_inner_texts() == ["n 4", "n 2"]
    drawing = page.locator("figure.chart svg").first
    marks = drawing.locator("text[y='183']").all_text_contents()
    assert marks[0] == "0" and marks[-1] == "4"
    box = drawing.bounding_box()
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_selector("text=Whole range")
    shot(page, "zoomed")
    for chart in page.locator("figure.chart svg").all()[:3]:
        assert "0" not in chart.locator("text[y='183']").all_text_contents()
    page.locator("figure.chart svg").first.dblclick(position={"x": 200, "y": 60})
    until(page, lambda: page.locator("figure.chart svg").first.locator("text[y='183']").all_text_contents() == marks)
    assert page.get_by_text("Whole range").is_hidden()


def test_the_held_out_card_of_a_live_run_is_the_newest(page: Any, url: str, root: Path) -> None:
    """A run that was resumed has a final evaluation from before; while it trains, the last measured step is shown."""
    shutil.copytree(root / "grpo-0", root / "resumed", symlinks=True)
    try:
        evaluation = json.loads((root / "resumed" / "evaluation.json").read_text())
        evaluation["before"]["value"]["mean"], evaluation["after"]["value"]["mean"] = 0.25, 0.75
        (root / "resumed" / "evaluation.json").write_text(json.dumps(evaluation))
        db = connect(root / "resumed" / "store.sqlite")
        db.execute("UPDATE metrics SET value = 0.5 WHERE name LIKE 'heldout/%accuracy' AND step = 2")
        db.close()
        page.goto(f"{url}#/run/resumed")
        page.wait_for_selector(".tile")
        card = page.locator(".tile").first
        assert card.locator("b").inner_text() == "75.0%" and re.search(
            r"^\[.*\], before: 25.0% \[", card.locator("small").inner_text()
        )
        db = connect(root / "resumed" / "store.sqlite")
        for name, value in (("state", "running"), ("process", process())):
            db.execute("INSERT OR REPLACE INTO info VALUES (?, ?)", (name, json.dumps(value)))
        db.close()
        until(page, lambda: page.locator(".tile").first.locator("b").inner_text() == "50.0%")
        assert "step 2, before: 25.0%" in page.locator(".tile").first.inner_text()
        page.goto(url)
        page.wait_for_selector("text=25.0% -> 50.0% so far")
    finally:
        shutil.rmtree(root / "resumed")


def test_long_names_and_tags_do_not_break_the_list(
    chromium: Any, url: str, root: Path, small_model: Path, tmp_path: Path
) -> None:
    """The table is as wide as the window, with long names of run, task and tag; a tag filters the list."""
    name, task = "a-name-that-goes-on-" * 8, tmp_path / ("rows-of-a-long-name-" * 8 + ".jsonl")
    rows(task, *({"prompt": f"{i}?", "answer": str(i)} for i in range(20)))
    go("grpo", small_model, root / name, task=str(task), tag="long,other", steps=1)
    context = chromium.new_context(viewport={"width": 1300, "height": 800})
    try:
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("table.runs tbody tr")
        frame = page.locator(".scroll").first
        assert frame.evaluate("box => box.scrollWidth <= box.clientWidth")
        row = page.locator("table.runs tbody tr", has_text="a-name-that-goes-on")
        assert row.bounding_box()["height"] < 100 and row.locator("td.name").get_attribute("title") == name
        row.locator(".label").first.click()
        assert page.locator("table.runs tbody tr").count() == 1
    finally:
        context.close()
        shutil.rmtree(root / name)


def test_traces_are_browsed_filtered_and_coloured(page: Any, url: str, root: Path) -> None:
    page.goto(f"{url}#/traces/grpo-0")
    page.wait_for_selector(".turn .token")
    with open_store(root / "grpo-0") as store:
        newest = store.traces(order="newest", limit=1)[0]
    assert f"Trace {newest['id']}" in page.locator(".detail h1").inner_text()
    assert page.locator(".turn .who b").all_inner_texts() == ["task", "policy"]
    assert page.locator(".strip button").count() == 4
    page.keyboard.press("2")  # by advantage
    assert page.locator(".modes button.on").inner_text() == "advantage"
    colours = {
        token.evaluate("t => t.style.background") for token in page.locator(".turn").nth(1).locator(".token").all()
    }
    assert any("color-mix" in colour or "color" in colour for colour in colours)
    shot(page, "trace-advantage")
    page.keyboard.press("3")
    assert page.locator(".modes button.on").inner_text() == "probability"
    page.keyboard.press("5")
    assert (
        page.locator(".modes button.on").inner_text() == "entropy" and "less sure" in page.locator(".key").inner_text()
    )
    painted = page.locator(".turn .token[style*=background]")
    assert (
        painted.count() == page.locator(".turn").nth(1).locator(".token").count()
    )  # all of the reply, none of the prompt
    page.locator(".turn").nth(1).locator(".token").first.hover()
    assert "entropy" in page.locator("#tip").inner_text()
    page.keyboard.press("3")
    page.locator(".turn").nth(1).locator(".token").first.hover()
    assert "log-prob" in page.locator("#tip").inner_text()
    before = page.locator(".detail h1").inner_text()
    page.keyboard.press("j")
    until(page, lambda: page.locator(".detail h1").inner_text() != before)
    page.keyboard.press("h")
    page.locator("input[name=least]").fill("0.5")
    page.locator("input[name=least]").press("Enter")
    until(page, lambda: all(float(text) >= 0.5 for text in page.locator(".entry .score").all_inner_texts()))
    page.locator("select[name=correct]").select_option("0")
    page.wait_for_selector("text=No trace matches these filters")


def replace_last_group(path: Path) -> None:
    """Two episodes as the last group of a store; their tokens are whole turns."""
    call = '{{"name": "open", "arguments": {{"box": {}}}}}'
    ends = {True: [("policy", "gold")], False: [("policy", call.format(4)), ("env", "gold"), ("policy", "4")]}
    with contextlib.closing(connect(path)) as db, db:
        [(group, step)] = db.execute("SELECT id, step FROM groups ORDER BY id DESC LIMIT 1")
        db.execute("DELETE FROM traces WHERE group_id = ?", (group,))
        for short in (False, True):
            turns = [("task", "Where?"), ("policy", call.format(3)), ("env", "empty"), *ends[short]]
            tokens = [900_000 + sum(text.encode()) for _, text in turns]
            facts = json.dumps([{"author": author, "tokens": 1, "versions": []} for author, _ in turns])
            row = (group, step, int(short), 0.5, 0.0, 1, 0.0, "open", facts, "{}", "{}", "[]", "{}")
            added = db.execute(
                "INSERT INTO traces (group_id, step, place, reward, correct, length, advantage, text, turns, scores, "
                "turn_scores, tags, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            ids, none = array("i", tokens).tobytes(), array("f", [math.nan] * len(turns)).tobytes()
            db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, '[]', ?)", (added.lastrowid, ids, none, b""))
            db.executemany(
                "INSERT OR REPLACE INTO vocabulary VALUES (?, ?)",
                [(token, text) for token, (_, text) in zip(tokens, turns, strict=True)],
            )


def test_episodes_show_their_tool_calls_and_the_tree_of_their_group(page: Any, url: str, root: Path) -> None:
    """A run whose last group is replaced by two episodes: one calls a tool once, the other twice."""
    shutil.copytree(root / "grpo-0", root / "episodes")
    replace_last_group(root / "episodes" / FILE)
    page.goto(f"{url}#/traces/episodes")
    page.wait_for_selector(".tree .node")
    until(page, lambda: page.locator(".tree .node").count() == 4)
    assert "1 first reply; traces part after 1 of 4 replies" in page.locator(".tree summary").inner_text()
    assert page.locator(".tree .node.on").count() == 2
    assert page.locator(".turn .call").all_inner_texts() == ["calls open(box=3)", "the tool's answer"]
    shot(page, "tree")
    page.locator(".tree .node:not(.on)").first.click()
    until(page, lambda: page.locator(".turn").count() == 6)
    assert "×2" in page.locator(".tree .node").first.inner_text()


def test_dropped_traces_say_why(page: Any, url: str) -> None:
    page.goto(f"{url}#/traces/dapo?dropped=1")
    page.wait_for_selector(".entry.gone")
    page.wait_for_selector(".turn .token")
    assert "mixed took it out" in page.locator(".detail").inner_text()
    shot(page, "dropped")


def test_words_are_found_and_groups_are_browsed(page: Any, url: str, root: Path) -> None:
    with open_store(root / "grpo-0") as store:
        prompt = store.traces(limit=1)[0]["prompt"]
    page.goto(f"{url}#/traces/grpo-0")
    page.wait_for_selector(".entry")
    page.locator("input[name=search]").fill(prompt)
    page.locator("input[name=search]").press("Enter")
    until(page, lambda: set(page.locator(".entry .prompt").all_inner_texts()) == {prompt})
    page.wait_for_selector(".entry.on")  # one of those that were found is open
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    page.wait_for_selector("#elsewhere table")
    page.locator("select[name=show]").select_option("groups")
    page.wait_for_selector(".entry .strip")
    shot(page, "groups")


def test_a_late_answer_does_not_replace_what_was_asked_for_since(page: Any, url: str) -> None:
    """The list of traces comes after that of groups, which was asked for later."""
    page.goto(f"{url}#/traces/grpo-0")
    page.wait_for_selector(".entry.on")
    held: list[Any] = []
    page.route("**/api/traces*", lambda route: held.append(route))
    page.locator("select[name=order]").select_option("oldest")
    page.locator("select[name=show]").select_option("groups")
    page.wait_for_selector(".entry .strip")
    assert len(held) == 1
    with page.expect_response("**/api/traces*"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert page.locator(".entry .strip").count() == page.locator(".entry").count() > 0


def test_a_prompt_is_compared_across_steps_and_runs(page: Any, url: str, few: str, root: Path) -> None:
    page.goto(f"{url}#/traces/{few}")
    page.wait_for_selector(".turn .token")
    page.keyboard.press("s")
    page.wait_for_selector("#elsewhere table")
    cells = [row.locator("td").all_inner_texts()[:2] for row in page.locator("#elsewhere tr").all()[1:]]
    met = {(name, step) for name, step in map(tuple, cells)}
    assert {name for name, _ in met} == {"few-0", "few-1"} and len({step for _, step in met}) > 1
    with open_store(root / few) as store:
        task = store.groups(limit=1, order="newest")[0]["task"]
        steps = {group["step"] for group in store.groups(limit=None) if group["task"] == task}
    assert len([1 for name, _ in met if name == few]) == len(steps)
    shot(page, "elsewhere")
    other = page.locator("#elsewhere tr", has_text="few-1").first.locator("a.reply").first
    number = int(re.search(r"id=(\d+)", other.get_attribute("href"))[1])  # type: ignore[index]
    other.click()  # a reply of the other run opens there
    until(page, lambda: "few-1" in page.locator("#where").inner_text())
    until(page, lambda: page.locator(".detail h1").inner_text() == f"Trace {number}")


def test_every_score_component_has_a_number_and_a_curve(page: Any, url: str, root: Path) -> None:
    with open_store(root / "dapo") as store:
        trace, metrics = store.traces(limit=1, order="newest")[0], store.metrics()
    components = set(trace["scores"]) - {"reward", "correct"}
    assert components
    page.goto(f"{url}#/traces/dapo")
    page.wait_for_selector(".turn .token")
    assert components <= set(page.locator(".detail dt").all_inner_texts())
    page.goto(f"{url}#/run/dapo")
    page.wait_for_selector("figure.chart svg")
    drawn = {name.get_attribute("data-name") for name in page.locator("figcaption .name").all()}
    assert {name for name in metrics[0] if name.startswith("score/")} <= drawn


def test_everything_is_reached_by_keyboard(page: Any, url: str, root: Path) -> None:
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    for key in "xjx":
        page.keyboard.press(key)
    assert page.locator("table.runs input:checked").count() == 2
    page.keyboard.press("Enter")
    page.wait_for_selector("text=2 runs together")
    page.goto(f"{url}#/run/grpo-1")
    page.wait_for_selector("figure.chart svg")
    page.keyboard.press("v")
    page.wait_for_selector(".turn .token")
    page.keyboard.press("[")  # from any step to the one before the last, or to the last
    until(page, lambda: page.locator("input[name=step]").input_value() != "")
    at = page.locator("input[name=step]").input_value()
    until(page, lambda: all(f"step {at}" in text for text in page.locator(".entry .line1").all_inner_texts()))
    page.keyboard.press("c")
    page.wait_for_selector("figure.chart svg")
    page.keyboard.press("g")
    page.wait_for_selector("table.runs tbody tr")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone(theme: str, chromium: Any, url: str) -> None:
    """Nothing is wider than the screen: tables and charts move inside their own frames."""
    context = chromium.new_context(viewport={"width": 400, "height": 800}, color_scheme=theme)
    page = context.new_page()
    for name, place in (("runs", "#/"), ("run", "#/run/grpo-0"), ("traces", "#/traces/grpo-0")):
        page.goto(f"{url}{place}")
        page.wait_for_selector("table.runs tbody tr, figure.chart svg, .turn .token")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, name
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        shot(page, f"phone-{theme}-{name}")
    context.close()


def test_light_dark_and_help_by_keyboard(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    shot(page, "dark")
    page.reload()
    page.wait_for_selector("table.runs tbody tr")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("?")
    assert page.locator("dialog[open] kbd").count() > 10
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_a_live_run_grows_on_the_page_and_takes_orders(page: Any, url: str, root: Path, small_model: Path) -> None:
    """A real run trains in a thread while the page looks on; Pause holds it, Resume releases it, Stop ends it."""
    folder, results = root / "live", []
    reward = function(root.parent / "live.py", COIN, "coin")
    options = {"reward": reward, "n": 4, "steps": 2000, "save_every": 5000}
    trainer = threading.Thread(target=lambda: results.append(go("grpo", small_model, folder, **options)))
    trainer.start()
    try:
        page.goto(f"{url}#/")
        page.wait_for_selector("text=live")
        page.goto(f"{url}#/run/live")
        page.wait_for_selector(".pill.running")
        page.wait_for_selector("figure.chart svg")
        page.get_by_role("button", name="Pause").click()
        page.wait_for_selector(".pill.paused")
        shot(page, "paused")
        with open_store(folder) as store:
            held = len(store.metrics())
        page.wait_for_timeout(600)
        with open_store(folder) as store:
            assert len(store.metrics()) == held
        page.get_by_role("button", name="Resume").click()
        page.wait_for_selector(".pill.running")
        page.keyboard.press("p")
        page.wait_for_selector(".pill.paused")
        page.keyboard.press("p")
        page.wait_for_selector(".pill.running")
        page.get_by_role("button", name="Save checkpoint").click()
        until(page, lambda: bool(list((folder / "checkpoints").glob("step-*"))))
        page.get_by_role("button", name="Stop").click()
        page.wait_for_selector(".pill.stopped")
    finally:
        if trainer.is_alive():
            order(folder, "stop")
        trainer.join(60)
    assert results and results[0].stopped and list((folder / "checkpoints").glob("step-*"))


def test_a_reply_cannot_write_html_into_the_page(
    page: Any, url: str, root: Path, small_model: Path, tmp_path: Path
) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    rows = tmp_path / "d.jsonl"
    rows.write_text("".join(json.dumps({"prompt": evil + str(i), "completion": evil}) + "\n" for i in range(20)))
    go("sft", small_model, root / "evil", task=str(rows))
    page.goto(f"{url}#/traces/evil")
    page.wait_for_selector(".turn .token")
    assert evil in page.locator(".entry .prompt").first.inner_text()
    assert page.title() != "owned" and page.locator(".detail img, .list img").count() == 0


# --------------------------------------------------------------------------------------------------- the run manager


@pytest.fixture
def own(small_model: Path, root: Path, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of two copied runs with a dashboard of its own, in which a test may start and delete."""
    place = tmp_path / "runs"
    for name in ("grpo-0", "dapo"):
        shutil.copytree(root / name, place / name)
    endpoint = endpoint_for("127.0.0.1", 0, None)
    server = make_server(Api(place), endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield place, endpoint.url()
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_runs_are_sorted_noted_archived_deleted_and_undone(page: Any, own: tuple[Path, str]) -> None:
    place, url = own
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    names = page.locator("td.name a")
    page.get_by_role("button", name="Sort by Run").click()
    assert names.all_inner_texts() == ["dapo", "grpo-0"]
    page.get_by_role("button", name="Sort by Run").click()
    assert names.all_inner_texts() == ["grpo-0", "dapo"]
    page.get_by_role("button", name="Note and tags: dapo").click()
    page.get_by_label("Note", exact=True).fill("the better one")
    page.get_by_label("Tags", exact=True).fill("kept")
    page.get_by_role("button", name="Save", exact=True).click()
    until(page, lambda: page.locator("small.note").all_inner_texts() == ["the better one"])
    shot(page, "manager")
    page.get_by_role("button", name="Archive: grpo-0").click()
    until(page, lambda: names.all_inner_texts() == ["dapo"])
    page.get_by_role("button", name="Undo").click()
    until(page, lambda: names.count() == 2)
    page.get_by_role("button", name="Delete: grpo-0").click()
    until(page, lambda: not (place / "grpo-0").exists() and names.count() == 1)
    page.get_by_role("button", name="Undo").click()
    until(page, lambda: (place / "grpo-0" / FILE).exists() and names.count() == 2)


def test_a_run_is_started_by_the_form_and_a_wrong_option_is_refused_there(page: Any, own: tuple[Path, str]) -> None:
    place, url = own
    page.goto(url)
    page.wait_for_selector("table.runs tbody tr")
    page.get_by_role("button", name="+ New run").click()
    page.wait_for_selector("dialog .fields input")
    page.get_by_label("Name").fill("from-the-page")
    page.get_by_label("Device").fill("cpu")
    field = page.locator("dialog label", has_text="steps").locator("input").first
    field.fill("0")
    page.get_by_role("button", name="Start", exact=True).click()
    until(page, lambda: "it must be at least 1" in page.locator("dialog .wrong").inner_text())
    shot(page, "form")
    field.fill("1")
    page.get_by_role("button", name="Start", exact=True).click()
    until(page, lambda: page.locator("dialog").count() == 1)  # the help alone, closed
    until(page, lambda: page.locator(".job").count() == 1)
    job = Api(place).manager.jobs()[0]
    assert job.words[:3] == ["train", "grpo", "--steps=1"] and job.run == "from-the-page"
    with contextlib.suppress(ProcessLookupError):
        os.kill(job.pid, 9)


def test_curves_have_other_axes(page: Any, url: str) -> None:
    page.goto(f"{url}#/run/grpo-0")
    page.wait_for_selector("figure.chart svg")
    page.get_by_label("x", exact=True).select_option("tokens")
    until(page, lambda: "over tokens" in str(page.locator("figure.chart svg").first.get_attribute("aria-label")))
    page.get_by_label("y", exact=True).select_option("log")
    page.get_by_label("x", exact=True).select_option("seconds")
    until(page, lambda: "over seconds" in str(page.locator("figure.chart svg").first.get_attribute("aria-label")))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("run,step,") and len(lines) == 5
    shot(page, "axes-whole")
