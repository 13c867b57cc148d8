"""The page in a real Chromium: ask, drop a file, check a fact, see the path; by keyboard too, in two sizes and colours.

That no line runs through a name is asserted from where they are drawn.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import contextpool as cp
from conftest import REPOSITORY
from contextpool.graph.graph import Graph
from contextpool.serve import GraphSource, ModelSource
from contextpool.serve.registry import Registry
from serve.served import TOKEN, fetch, in_thread, world_graph
from world_model import CONTEXT, SETTINGS, TRAIN

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PICTURES = REPOSITORY / ".screenshots"
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
LOOKS = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
ANSWER = "Belarusian Ruble"
PATIENCE = 120
"""Seconds: this may run on a machine with other work."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    named = os.environ.get("CONTEXTPOOL_BROWSER")
    path = named or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(
            f"no Chromium on this machine ({', '.join(BROWSERS)}); `make browser` installs it where it can"
        )
    PICTURES.mkdir(exist_ok=True)
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield one
        one.close()


class Page:
    """A page of a browser that fails on whatever the console says and on every request to elsewhere."""

    def __init__(self, browser: Any, url: str, size: str = "wide", scheme: str = "light") -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.url, self.said, self.asked = url, list[str](), list[str]()
        self.size, self.scheme = size, scheme
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{url}/")

    def find(self, selector: str, **options: Any) -> Any:
        return self.page.locator(selector, **options)

    def until(self, condition: str) -> None:
        """Wait until a condition in JavaScript holds; the page's policy keeps playwright's own way out."""
        ends = time.monotonic() + PATIENCE
        while not self.page.evaluate(condition):
            assert time.monotonic() < ends, condition
            self.page.wait_for_timeout(20)

    def choose(self, field: str, typed: str, label: str) -> None:
        self.page.fill(f"#{field}", typed)
        self.find(f"#{field}-list").get_by_role("option", name=label).first.click()

    def ask(self, head: str, relation: str) -> None:
        self.choose("head", head[:4], head)
        self.choose("relation", relation, relation)
        self.find("#answers button").first.wait_for()

    def picture(self, name: str) -> None:
        """A screenshot; nothing may stick out sideways."""
        assert self.page.evaluate("document.documentElement.scrollWidth") <= SIZES[self.size][0]
        self.page.screenshot(path=PICTURES / f"{name}-{self.size}-{self.scheme}.png", full_page=True)

    def explain(self, answer: str) -> None:
        self.find(f"#answers button[data-entity={json.dumps(answer)}]").click()
        self.until(
            f"document.getElementById('status').textContent === {json.dumps(f'Evidence for {answer}')}"
        )

    def close(self) -> None:
        assert self.said == []
        assert all(address.startswith((self.url, "data:")) for address in self.asked)
        self.context.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """As a new user has it: the model that comes with contextpool, on one graph."""
    with in_thread(
        Registry([ModelSource("any", None)], [GraphSource("world", world_graph)]), deadline=PATIENCE
    ) as url:
        yield url


@pytest.fixture(scope="module")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model that walks a pooled graph."""
    run = tmp_path_factory.mktemp("pooling") / "run"
    context = {**CONTEXT, "views": [{"min_precision": 0.1}]}
    few = {**TRAIN, "epoch_steps": 4, "valid_facts": 40, "test_facts": 40}
    cp.train("world", "nbfnet", context, output=run, settings=SETTINGS, train=few)
    with in_thread(
        Registry([ModelSource("pooling", run)], [GraphSource("world", world_graph)]), deadline=PATIENCE
    ) as url:
        yield url


@pytest.fixture
def opened(browser: Any, server: str) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def open_page(size: str = "wide", scheme: str = "light", url: str | None = None) -> Page:
        pages.append(Page(browser, url or server, size, scheme))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_type_choose_click_and_see_the_path(opened: Callable[..., Page], size: str, scheme: str) -> None:
    page = opened(size, scheme)
    page.ask("Belarus", "currency")
    first = page.find("#answers button").first
    assert "1" in first.locator(".rank").inner_text()
    assert "%" in first.locator(".chance").inner_text()
    page.explain(ANSWER)
    assert page.find("#evidence-title").inner_text() == ANSWER
    assert page.find("#paths li").count() >= 1
    assert "Belarus" in page.find("#paths li").first.inner_text()
    assert page.find("#picture .edge.on-path").count() >= 2
    assert page.find("#picture .node.given title").text_content() == "Belarus"
    assert page.find("#picture .node.answer title").text_content() == ANSWER
    assert page.find("#context tbody tr").count() >= 5
    assert page.find("fieldset.sliders").is_hidden()  # this model does not pool
    page.picture("answer")


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_it_opens_with_three_questions_that_can_be_asked(
    opened: Callable[..., Page], size: str, scheme: str
) -> None:
    page = opened(size, scheme)
    page.until("document.querySelectorAll('#examples button').length === 3")
    page.picture("landing")
    first = page.find("#examples button").first
    head = first.locator("strong").inner_text()
    first.click()
    page.find("#answers button").first.wait_for()
    assert page.find("#head").input_value() == head
    assert page.find("#answers-told").is_hidden()  # the graph holds none, and the best is worth a bet


WORLD = [tuple(one) for one in cp.load_dataset("world").inference_graph]
DROP = """(text) => {
    const moved = new DataTransfer();
    moved.items.add(new File([text], 'mine.csv'));
    document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: moved, bubbles: true, cancelable: true}));
}"""


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_a_dropped_file_is_asked_at_once(opened: Callable[..., Page], size: str, scheme: str) -> None:
    """With semicolons: told, and read right by the button beside what is told."""
    page = opened(size, scheme)
    page.ask("Belarus", "currency")
    rows = "".join(f"{head.lower()};{relation};{tail.lower()}\n" for head, relation, tail in WORLD)
    page.page.evaluate(DROP, rows)
    page.find("#problem", has_text="mine.csv:1: 1 field instead of three").wait_for()
    assert page.find("#answers").is_hidden()
    page.find("#problem button", has_text="Read it with delimiter=;").click()
    page.find("#size", has_text="mine").wait_for()
    page.until("document.querySelectorAll('#examples button').length === 3")
    assert "2,653 facts" in page.find("#size").inner_text()
    assert page.find("#problem").is_hidden()
    page.picture("dropped")
    page.ask("belarus", "currency")
    page.explain("belarusian ruble")
    assert "graph=mine" in page.page.url
    assert [one for one in page.said if "422" not in one] == []  # the browser itself notes the refusal
    page.said.clear()


def test_what_looks_odd_in_a_file_is_told_with_what_mends_it(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    rows = [("who", "how", "whom"), *(one for one in WORLD if "," not in "".join(one))]
    (tmp_path / "named.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    page = opened()
    page.page.set_input_files("#file", tmp_path / "named.csv")
    page.find("#remarks", has_text="look like the names of the columns").wait_for()
    page.find("#remarks button", has_text="Read it with header=yes").click()
    page.until("document.getElementById('remarks').hidden")
    assert f"{len(rows) - 1:,} facts" in page.find("#size").inner_text()


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_a_fact_is_checked_and_a_relation_is_found(
    opened: Callable[..., Page], size: str, scheme: str
) -> None:
    page = opened(size, scheme)
    page.ask("Minsk", "located_in")
    page.choose("tail", "Pola", "Poland")
    page.find("#verdict", has_text="plausible").wait_for()
    page.until("document.getElementById('status').textContent === 'Checked'")
    assert page.find("#answers button").count() == 0
    assert page.find("#verdict ul li").count() >= 1
    assert page.find("#evidence-title").inner_text() == "Poland"
    page.picture("checked")
    page.page.fill("#relation", "")
    page.choose("head", "Viteb", "Vitebsk")
    page.choose("tail", "Belar", "Belarus")
    page.find("#answers button").first.wait_for()
    page.find("#known").check()
    page.find("#answers .tag").first.wait_for()
    assert page.find("#answers-title").inner_text() == "(Vitebsk, ?, Belarus)"
    assert page.find("#verdict").is_hidden()
    page.explain("located_in")
    assert page.find("#evidence-title").inner_text() == "Belarus"
    page.page.fill("#head", "")
    page.choose("tail", "Euro", "Euro")
    page.choose("relation", "currency", "currency")
    page.until("document.getElementById('answers-title').textContent === '(?, currency, Euro)'")
    page.explain("Austria")
    assert page.find("#picture .node.given title").text_content() == "Euro"


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_an_error_clears_what_was_found_before(opened: Callable[..., Page], size: str, scheme: str) -> None:
    page = opened(size, scheme)
    page.ask("Belarus", "currency")
    page.explain(ANSWER)
    page.page.fill("#head", "Belarrus")
    page.find("#question button[type=submit]").click()
    page.find("#problem").wait_for()
    assert page.find("#evidence").is_hidden()
    assert page.find("#answers").is_hidden()
    page.picture("error")
    page.said.clear()


GEOMETRY = """() => {
    const box = (one) => {
        const found = one.getBoundingClientRect();
        return [found.left, found.top, found.right, found.bottom];
    };
    const all = (selector) => [...document.querySelectorAll(selector)];
    const lines = all('#picture .edge').map((edge) => {
        const there = edge.getScreenCTM(), points = [];
        for (let at = 0, all = edge.getTotalLength(); at <= all; at += 1.5) {
            const point = edge.getPointAtLength(at).matrixTransform(there);
            points.push([point.x, point.y]);
        }
        return points;
    });
    return {lines, texts: all('#picture svg text').map((one) => [...box(one), one.textContent]),
            dots: all('#picture circle').map(box), frame: box(document.querySelector('#picture'))};
}"""


def within(point: list[float], box: list[Any], by: float = 0.0) -> bool:
    return box[0] + by < point[0] < box[2] - by and box[1] + by < point[1] < box[3] - by


def overlap(one: list[Any], other: list[Any]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] + 2 < other[3] and other[1] + 2 < one[3]


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize(
    ("head", "relation", "answer"),
    [("Belarus", "currency", ANSWER), ("Austria", "borders", "Slovakia"), ("Minsk", "speaks", "Russian"),
     ("Euro", "currency^-1", "Cyprus"), ("France", "capital", "Paris")],
)  # fmt: skip
def test_no_line_runs_through_a_name_or_a_dot(
    opened: Callable[..., Page], server: str, size: str, head: str, relation: str, answer: str
) -> None:
    page = opened(size)
    page.page.goto(f"{server}/#head={head}&relation={relation}&answer={answer}")
    page.page.reload()
    page.find("#picture svg").wait_for()
    drawn = page.page.evaluate(GEOMETRY)
    _, told = fetch_json(
        f"{server}/explain?head={head}&relation={relation}&tail={answer.replace(' ', '%20')}&paths=5"
    )
    edges = [edge for path in told["paths"] for edge in path["edges"]]
    assert page.find("#picture .edge.on-path").count() == len(edges) > 0
    labels = page.find("#picture .relation.on-path").all_text_contents()
    assert len(labels) == len(edges)  # every edge of a path has one
    assert all(len(label) > 3 for label in labels)
    for text in drawn["texts"]:
        assert drawn["frame"][0] - 1 <= text[0], text
        assert text[2] <= drawn["frame"][2] + 1, text
        assert not any(within(point, text, 1) for line in drawn["lines"] for point in line), text
        assert not any(overlap(text, dot) for dot in drawn["dots"]), text
    for number, text in enumerate(drawn["texts"]):
        assert not [other for other in drawn["texts"][:number] if overlap(text, other)], text
    for dot in drawn["dots"]:  # a line may end in a dot; none goes on behind it
        middle = [(dot[0] + dot[2]) / 2, (dot[1] + dot[3]) / 2]
        for line in drawn["lines"]:
            inside = [place for place, point in enumerate(line) if within(point, dot, 1)]
            ends = {0, len(line) - 1}
            assert not inside or {inside[0], inside[-1]} & ends, (dot, middle)


def fetch_json(address: str) -> tuple[int, Any]:
    return fetch(urllib.request.Request(address))


def test_the_api_can_be_tried_at_docs(opened: Callable[..., Page]) -> None:
    page = opened()
    page.page.goto(f"{page.url}/docs")
    page.find("summary", has_text="GET /predict").click()
    page.find("details[open] button").click()
    page.find("details[open] pre", has_text="Belarusian Ruble").wait_for()
    page.find("details[open] summary").click()
    page.find("summary", has_text="POST /check").click()
    page.find("details[open] button").click()
    page.find("details[open] pre", has_text="tail_rank").wait_for()
    page.picture("docs")


def text_boxes(page: Page) -> list[dict[str, float]]:
    script = """() => [...document.querySelectorAll('#picture svg text')].map((one) => {
        const box = one.getBoundingClientRect();
        return {x: box.x, y: box.y, right: box.right, bottom: box.bottom, told: one.textContent};
    })"""
    return page.page.evaluate(script)  # type: ignore[no-any-return]


def test_sliders_pool_again_and_the_picture_stays_in_place(opened: Callable[..., Page], pooling: str) -> None:
    page = opened(url=pooling)
    page.ask("Belarus", "currency")
    page.explain(page.find("#answers button").first.get_attribute("data-entity"))
    places = text_boxes(page)
    kept = page.find("#context tbody tr.kept").count()
    assert kept > 3
    before = page.find("#counts").inner_text()
    with page.page.expect_response(
        lambda answer: "/pool?" in answer.url and "min_precision=0.79" in answer.url
    ):
        page.page.fill("#min-precision", "0.79")
    page.until("document.querySelectorAll('#context tbody tr.kept').length === 1")
    assert page.find("#min-precision-value").inner_text() == "0.79"
    assert page.find("#counts").inner_text() != before
    assert page.find("#picture .edge.dropped").count() > 3
    assert page.find("#picture .node.dropped").count() > 0
    assert text_boxes(page) == places
    page.picture("pooled-again")
    page.find("#reset").click()
    page.until(f"document.querySelectorAll('#context tbody tr.kept').length === {kept}")
    assert page.find("#counts").inner_text() == before
    page.page.fill("#min-recall", "0.95")
    page.until("document.querySelectorAll('#context tbody tr.kept').length === 1")


def test_everything_can_be_done_with_the_keyboard(opened: Callable[..., Page], pooling: str) -> None:
    page = opened(url=pooling)
    keys = page.page.keyboard
    page.until("document.activeElement.id === 'head'")
    keys.type("bela")
    page.find("#head-list li").first.wait_for()
    assert page.find("#head").get_attribute("aria-expanded") == "true"
    keys.press("ArrowDown")
    assert page.find("#head").get_attribute("aria-activedescendant") == "head-list-0"
    keys.press("Enter")
    assert page.page.evaluate("document.activeElement.id") == "relation"
    assert page.find("#head-list").is_hidden()
    keys.type("curr")
    page.find("#relation-list li").first.wait_for()
    keys.press("ArrowDown")
    keys.press("Enter")
    page.find("#answers button").first.wait_for()
    for _ in range(20):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.closest('#answers') !== null"):
            break
    keys.press("ArrowDown")
    keys.press("ArrowUp")
    keys.press("Enter")
    page.find("#picture svg").wait_for()
    first = page.find("#answers button").first
    assert first.get_attribute("aria-current") == "true"
    assert page.find("#evidence-title").inner_text() == first.get_attribute("data-entity")
    page.find("#min-precision").focus()
    value = page.find("#min-precision").input_value()
    keys.press("ArrowRight")
    assert page.find("#min-precision").input_value() != value
    assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_address_holds_the_question_and_its_answer(opened: Callable[..., Page]) -> None:
    page = opened()
    page.ask("Belarus", "currency")
    page.explain(ANSWER)
    assert f"answer={ANSWER.replace(' ', '+')}" in page.page.url
    again = opened(url=None)
    again.page.goto(page.page.url)
    again.page.reload()
    again.find("#picture svg").wait_for()
    assert again.find("#evidence-title").inner_text() == ANSWER
    assert again.find("#head").input_value() == "Belarus"
    page.page.go_back()
    page.until("!location.hash.includes('answer')")


def test_the_json_is_the_servers_and_can_be_copied(opened: Callable[..., Page], server: str) -> None:
    page = opened()
    page.ask("Belarus", "currency")
    page.explain(ANSWER)
    page.find("details.json summary").click()
    page.find("#copy").click()
    page.until("document.getElementById('copy').textContent === 'Copied'")
    copied = json.loads(page.page.evaluate("navigator.clipboard.readText()"))
    _, expected = fetch_json(
        f"{server}/explain?head=Belarus&relation=currency&tail={ANSWER.replace(' ', '%20')}"
    )
    assert copied["paths"][0]["edges"] == expected["paths"][0]["edges"]
    assert copied["model"] == expected["model"]


def test_known_answers_more_answers_and_inverse_relations(opened: Callable[..., Page]) -> None:
    page = opened()
    page.ask("Austria", "borders")
    assert page.find("#answers .tag").count() == 0
    page.find("#known").check()
    page.until("document.querySelectorAll('#answers .tag').length > 2")
    page.find("#more").click()
    page.until("document.querySelectorAll('#answers button').length === 50")
    page.find("#known").uncheck()
    page.choose("head", "Euro", "Euro")
    page.page.fill("#relation", "← curr")
    page.find("#relation-list").get_by_role("option", name="← currency").click()
    page.until("document.getElementById('answers-title').textContent.startsWith('(Euro, ← currency')")


def test_an_unknown_name_is_told_with_what_was_meant(opened: Callable[..., Page]) -> None:
    page = opened()
    page.page.fill("#head", "Belarrus")
    page.page.fill("#relation", "currency")
    page.find("#question button[type=submit]").click()
    page.find("#problem").wait_for()
    assert "entity 'Belarrus' is unknown" in page.find("#problem").inner_text()
    page.find("#problem button", has_text="Belarus").click()
    page.find("#answers button").first.wait_for()
    assert page.find("#head").input_value() == "Belarus"
    assert page.find("#problem").is_hidden()
    assert len(page.said) == 1  # the browser itself notes the 404
    page.said.clear()


def test_text_can_be_read_in_both_schemes(opened: Callable[..., Page]) -> None:
    script = """() => ['text', 'muted', 'accent', 'answer', 'problem'].map((name) => {
        const style = getComputedStyle(document.documentElement);
        return [name, style.getPropertyValue('--' + name).trim(), style.getPropertyValue('--card').trim()];
    })"""
    for scheme in ("light", "dark"):
        for name, colour, ground in opened("wide", scheme).page.evaluate(script):
            assert contrast(colour, ground) >= 4.5, (scheme, name, colour)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


NASTY = "<img src=x onerror=document.title='broken'>"
FACTS = [("a", "borders", NASTY), (NASTY, "borders", "b<script>x</script>"), ("b<script>x</script>", "near", "a"),
         ("a", "capital", "c&amp;d"), ("c&amp;d", "near", NASTY), ("c&amp;d", "located_in", "a")]  # fmt: skip


def test_labels_that_are_markup_are_shown_as_text(browser: Any, world_run: Path) -> None:
    graph = GraphSource("nasty", lambda: Graph.from_triples(FACTS))
    with in_thread(Registry([ModelSource("<b>m", world_run)], [graph])) as url:
        page = Page(browser, url)
        page.until("document.getElementById('about').textContent === '<b>m on nasty'")
        page.page.fill("#head", "<img")
        page.find("#head-list li").first.click()
        assert page.find("#head").input_value() == NASTY
        page.choose("relation", "borders", "borders")
        page.find("#answers button").first.wait_for()
        for answer in ("c&amp;d", "a"):
            page.explain(answer)
            assert page.find("#evidence-title").inner_text() == answer
        assert page.page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert page.page.title() == "contextpool"
        page.close()


def test_a_token_is_asked_for_once(browser: Any, registry: Registry) -> None:
    with in_thread(registry, token=TOKEN) as url:
        page = Page(browser, url)
        page.find("#token-dialog[open]").wait_for()
        page.page.fill("#token", "a-wrong-token-of-some-length")
        page.page.keyboard.press("Enter")
        page.find("#token-dialog p", has_text="not the right one").wait_for()
        page.page.fill("#token", TOKEN)
        page.page.keyboard.press("Enter")
        page.find("#model option").first.wait_for(state="attached")
        assert page.find("#model-choice").is_visible()  # two models are served
        page.ask("Belarus", "currency")
        page.find("#model").select_option("walk")
        page.until("location.hash.includes('model=walk')")
        page.page.reload()
        page.find("#answers button").first.wait_for()
        page.said = [one for one in page.said if "401" not in one]
        page.close()
