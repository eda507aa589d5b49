"""The page in a real browser: `make test-page`. Chromium of the system, driven by Playwright."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from blackout.serve.shelf import Shelf

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, client: Any) -> Iterator[Page]:
    """The page, opened; whatever it fetches from elsewhere or complains about fails the test."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    # a refusal of the server shows up there too, and is the page's to tell
    page.on(
        "console",
        lambda said: (
            faults.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    address = f"http://127.0.0.1:{client.port}/"
    page.on(
        "request",
        lambda r: faults.append(r.url) if not r.url.startswith((address, "data:")) else None,
    )
    page.goto(address)
    yield page
    context.close()
    assert not faults


def read(page: Page, text: str) -> None:
    page.fill("#text", text)
    words = len(text.split()) + len([line for line in text.split("\n") if line.strip()])
    expect(page.locator("#tokens .word")).to_have_count(words)


def test_it_begins_with_an_example(page):
    expect(page.locator("#tokens .word").first).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("small: perplexity")
    assert page.input_value("#text")


def test_who_types_at_once_keeps_the_text(browser, client):
    """The example does not take the place of what was typed before the models were there."""
    page = browser.new_page()
    waiting = []
    page.route("**/v1/models", lambda route: waiting.append(route))
    page.goto(f"http://127.0.0.1:{client.port}/")
    page.fill("#text", "the dog")
    with page.expect_response("**/v1/score"):
        waiting[0].continue_()
    page.wait_for_load_state("networkidle")
    assert page.input_value("#text") == "the dog"
    expect(page.locator("#tokens .word")).to_have_count(3)
    page.close()


def test_words_have_colours_and_details(page, client):
    read(page, "the cat sees\nthe zebra")
    _, answer = client.ask("/v1/score", {"text": "the cat sees\nthe zebra"})
    words = page.locator("#tokens .word")
    expect(words.nth(5)).to_have_class(re.compile("unknown"))
    words.nth(1).hover()
    token = answer["tokens"][1]
    rank = "the first choice" if token["rank"] == 1 else f"choice no. {token['rank']}"
    expect(page.locator("#detail")).to_contain_text(rank)
    expect(page.locator("#detail .bars li")).to_have_count(5)
    expect(page.locator("#detail .bars li").first).to_contain_text(
        token["best"][0]["word"].replace("</s>", "end of sentence")
    )


def test_the_keyboard_alone_will_do(page):
    read(page, "the cat sees a dog")
    page.keyboard.press("Tab")
    page.focus("#numbers")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    focused = page.locator("#tokens .word:focus")
    expect(focused).to_have_text(re.compile("^sees"))
    assert re.match(r"sees: .+, rank \d+", focused.get_attribute("aria-label") or "")
    expect(page.locator("#detail")).to_contain_text("sees")
    page.keyboard.press("End")
    expect(page.locator("#tokens .word:focus")).to_have_attribute("data-place", "5")
    expect(page.locator('#tokens .word[tabindex="0"]')).to_have_count(1)


def test_two_models_side_by_side(page):
    page.select_option("#other", "small+three")
    read(page, "the cat sees a house")
    expect(page.locator("#detail, #apart").last).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("small+three: perplexity")
    expect(page.locator("#share-label")).to_be_visible()
    page.locator("#tokens .word").nth(2).hover()
    expect(page.locator("#detail h3")).to_have_count(2)
    before = page.locator("#summary").inner_text()
    page.evaluate("$('share').value = 0; $('share').dispatchEvent(new Event('input'))")
    expect(page.locator("#summary")).not_to_have_text(before)


def test_details_are_in_sight_of_their_word(page):
    """Of a text longer than the window too, by mouse and by keyboard; Escape puts them away."""
    page.emulate_media(reduced_motion="reduce")  # places are measured at once
    read(page, "the cat sees a house and the dog\n" * 30)
    words = page.locator("#tokens .word")
    words.first.hover()
    for place in (0, 200):
        words.nth(place).focus()
        panel, word = page.locator("#detail").bounding_box(), words.nth(place).bounding_box()
        assert panel
        assert word
        assert panel["y"] + panel["height"] <= 900
        assert 0 <= word["y"] <= panel["y"] - word["height"]
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail")).to_be_visible()


def test_a_mixture_has_the_share_of_the_server(browser, shelf, serve):
    """Until the slider is moved; it has fewer places than there are numbers."""
    network, ngram = shelf.find("small").network, shelf.find("three").ngram
    asked = []
    with serve(Shelf([("small", network)], ("three", ngram), [0.3217])) as client:
        page = browser.new_page()
        page.on("request", lambda r: asked.append(r.post_data_json) if r.post_data else None)
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.select_option("#other", "small+three")
        read(page, "the cat sees a house")
        expect(page.locator("#share-value")).to_have_text("0.32")
        expect(page.locator("#summary")).to_contain_text("small+three: perplexity")
        mixed = [question for question in asked if question["model"] == "small+three"]
        assert mixed
        assert not [question for question in mixed if "weight" in question]
        page.evaluate("$('share').value = 0.5; $('share').dispatchEvent(new Event('input'))")
        expect(page.locator("#share-value")).to_have_text("0.50")
        with page.expect_request(lambda r: bool(r.post_data and '"weight":0.5' in r.post_data)):
            pass
        page.close()


def test_curves_have_room_for_their_numbers(page):
    least = page.evaluate(
        """() => Math.min(...[[1, 9999], [5e4, 123456], [1e6, 23456789]].flatMap((ys) => {
          const figure = plot("speed", [{ name: "a", points: ys.map((y, i) => [i + 1, y]) }], true);
          document.body.append(figure);
          return [...figure.querySelectorAll("text")].map((text) => text.getBBox().x);
        }))"""
    )
    assert least >= 0


def test_next_words_are_taken_with_a_click(page, client):
    _, answer = client.ask("/v1/next", {"text": "the"})
    page.fill("#prompt", "the ")
    first = page.locator("#next button").first
    word = answer["words"][0]["word"]
    expect(first).to_contain_text("¶" if word == "</s>" else word)
    page.fill("#prompt", "the ca")
    page.locator("#next button", has_text="cat").first.click()
    assert page.input_value("#prompt") == "the cat "


def test_text_is_written_as_it_comes(page, client):
    page.fill("#prompt", "the cat")
    page.fill("#count", "20")
    page.click("#go")
    question = {"prompt": "the cat", "words": 20, "temperature": 0.8}
    _, lines = client.ask("/v1/generate", question)
    text = "the cat" + "".join(line.get("text", "") for line in lines)
    expect(page.locator("#written")).to_have_text(text)
    expect(page.locator("#stop")).to_be_disabled()


def test_near_words_and_curves(page):
    page.fill("#word", "cat")
    page.keyboard.press("Enter")
    expect(page.locator("#near-list .bars li")).to_have_count(2 * 10)
    expect(page.locator("#plots svg")).to_have_count(2)


def test_a_fault_is_said_and_forgotten(page):
    page.fill("#word", "xylophone")
    page.keyboard.press("Enter")
    expect(page.locator("#alarm")).to_contain_text("does not know the word")
    page.fill("#word", "cat")
    page.keyboard.press("Enter")
    expect(page.locator("#alarm")).to_be_hidden()


def test_words_are_never_taken_for_html(page):
    read(page, "<img src=x onerror=alert(1)> <b>the</b>")
    assert page.locator("#tokens img, #tokens b").count() == 0


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_it_fits_the_width(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.select_option("#other", "three")
    read(page, "the cat sees a house and " * 6)
    page.locator("#tokens .word").nth(3).hover()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(page):
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")]
        .filter((e) => !(e.labels && e.labels.length) && !e.textContent.trim()
          && !e.getAttribute("aria-label")).map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_colours_can_be_read(browser, client):
    """WCAG's contrast of 4.5 between words and what is behind them, light and dark."""
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/")
        assert page.evaluate(CONTRAST) >= 4.5, scheme
        context.close()


CONTRAST = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = numbers(getComputedStyle(document.body).backgroundColor);
  const found = [];
  for (const kind of ["s0", "s1", "s2", "s3", "s4", "s5", "c1", "c2", "c3", "soft"]) {
    const node = Object.assign(document.createElement("button"), { className: `word ${kind}` });
    document.body.append(node);
    const style = getComputedStyle(node);
    const [r, g, b, alpha = 1] = numbers(style.backgroundColor);
    const over = [r, g, b].map((v, i) => v * alpha + paper[i] * (1 - alpha));
    const [a, c] = [light(over), light(numbers(style.color))].sort((x, y) => y - x);
    found.push((a + 0.05) / (c + 0.05));
    node.remove();
  }
  return Math.min(...found);
}"""


def test_a_token_is_asked_for_and_kept(browser, shelf, serve):
    with serve(shelf, token="secret") as guarded:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{guarded.port}/")
        page.fill("#token", "secret")
        page.keyboard.press("Enter")
        expect(page.locator("#tokens .word").first).to_be_visible()
        page = browser.new_context().new_page()
        page.goto(f"http://127.0.0.1:{guarded.port}/#token=secret")
        expect(page.locator("#tokens .word").first).to_be_visible()
        assert "secret" not in page.url
        context.close()
