"""`browser`: pages in a real browser without a window, which are read, filled in and clicked.

Needs playwright (pip install 'burnish[browser]') and a Chromium: on the PATH, by BURNISH_CHROMIUM, or as playwright
installs it. The pages are answered by this process; every other request is refused, so nothing leaves the machine. One
browser serves all episodes, each with a context of its own: cookies, storage and history are not shared.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import random
import re
import shutil
from dataclasses import dataclass
from typing import Any

from burnish.envs.protocol import Outcome
from burnish.envs.work.answered import command_of
from burnish.envs.work.family import WorkFamily
from burnish.verifiers.answer_line import LONGEST_REPLY

SITE = "http://shop.test"
SECONDS = 10.0  # of one action
SHOWN = 1_500  # characters of a page
ACTIONS = "say: click NAME, type NAME VALUE, choose NAME VALUE, or back"
_COLOURS = ("red", "blue", "green", "grey", "pink")
_THINGS = ("pen", "cup", "map", "key", "hat")
_SENT = ("ground", "air", "sea")
# What a reader sees of a page: its text, then what can be used, by name.
_READ = """() => {
  const shown = e => e.offsetParent !== null;
  const used = [...document.querySelectorAll('a, button, input, select')].filter(shown).map(e => {
    if (e.tagName === 'A') return e.innerText;
    if (e.tagName === 'BUTTON') return '(' + e.innerText + ')';
    if (e.tagName === 'SELECT')
      return e.name + '=[' + e.selectedOptions[0].text + '] of ' + [...e.options].map(o => o.text).join(', ');
    return e.name + '=[' + (e.type === 'checkbox' ? (e.checked ? 'x' : ' ') : e.value) + ']';
  });
  const text = [...document.querySelectorAll('h1, p')].filter(shown).map(e => e.innerText).join('. ');
  return text + ' | ' + used.join(' ');
}"""


@dataclass(frozen=True)
class Shop:
    """Items with prices, and the order that is wanted: item, number, way of sending ("" where it is not asked)."""

    items: tuple[tuple[str, int], ...]
    wanted: tuple[str, int, str]
    pages: bool  # whether the items are on pages of their own, behind links

    def page(self, path: str, asked: dict[str, str]) -> str:
        """The page at a path."""
        if path == "/sent":
            return _page("Thank you", "")
        if path == "/item" and (number := asked.get("item", "")) in map(str, range(len(self.items))):
            name, price = self.items[int(number)]
            return _page(f"{name}, {price} each", self._form(number))
        if self.pages:
            links = " ".join(f'<a href="/item?item={i}">{name}</a>' for i, (name, _) in enumerate(self.items))
            return _page("Shop", links)
        return _page("Shop", self._form(""))

    def _form(self, number: str) -> str:
        """The form of an item, or of all of them where it has no number."""
        options = "".join(f'<option value="{i}">{name}</option>' for i, (name, _) in enumerate(self.items))
        what = f'<input type="hidden" name="item" value="{number}">' if number else ""
        what = what or f'<select name="item">{options}</select>'
        ways = "".join(f"<option>{way}</option>" for way in _SENT)
        way = f'<select name="by">{ways}</select>' if self.wanted[2] else ""
        count = '<input name="count" value="1">'
        return f'<form method="post" action="/order">{what}{count}{way}<button>order</button></form>'


def _fields(sent: str) -> dict[str, str]:
    """The fields of a form as a browser sends them; those of a right order need no decoding."""
    return {name: value for name, _, value in (pair.partition("=") for pair in sent.split("&"))}


def _page(title: str, body: str) -> str:
    return f"<!doctype html><title>{title}</title><h1>{title}</h1>{body}"


class Browsing:
    """Actions: click NAME, type NAME VALUE, choose NAME VALUE, back. Reward 1 when the right order is sent; another
    order ends the episode without one.
    """

    foreign = True

    def __init__(self, position: Shop) -> None:
        self.position = position
        self.most = 2 * len(_plan(position)) + 3
        self.made, self.over = 0, False
        self.sent: dict[str, str] | None = None
        self.seen = ""
        self._context: Any = None
        self._page: Any = None

    async def reset(self) -> str:
        self.made, self.over, self.sent = 0, False, None
        self._context = await (await _browser()).new_context()
        self._context.set_default_timeout(1000 * SECONDS)
        await self._context.route("**/*", self._answer)
        self._page = await self._context.new_page()
        await self._page.goto(f"{SITE}/")
        item, many, way = self.position.wanted
        by = f", by {way}" if way else ""
        return f"Order {many} {item}{by}. {await self._shown()}"

    async def _answer(self, route: Any) -> None:
        """What the shop's server would: pages, and the order that is sent to it."""
        request = route.request
        if not request.url.startswith(f"{SITE}/"):
            await route.abort()
            return
        path, _, query = request.url.removeprefix(SITE).partition("?")
        if request.method == "POST" and path == "/order":
            self.sent = _fields(request.post_data or "")
            body = self.position.page("/sent", {})
        else:
            body = self.position.page(path, _fields(query))
        await route.fulfill(status=200, content_type="text/html; charset=utf-8", body=body)

    async def step(self, action: str) -> Outcome:
        if self.over:
            raise ValueError("the episode is over; call reset() to begin again")
        self.made += 1
        said = command_of(action[-LONGEST_REPLY:])
        problem = await self._do(said)
        if self.sent is not None:
            self.over = True
            item, many, way = self.position.wanted
            number = [name for name, _ in self.position.items].index(item)
            right = self.sent == {"item": str(number), "count": str(many), **({"by": way} if way else {})}
            return Outcome("sent" if right else "sent, but not what was asked for", float(right), terminated=True)
        self.over = self.made >= self.most
        return Outcome(f"{problem}{await self._shown()}", 0.0, truncated=self.over)

    async def _do(self, said: str) -> str:
        """Do it; what was wrong with it, empty where nothing was."""
        what, _, rest = said.partition(" ")
        name, _, value = rest.strip().partition(" ")
        try:
            if what == "back":
                await self._page.go_back()
            elif what == "click" and rest.strip():
                place = self._page.locator("a, button").filter(has_text=re.compile(f"^{re.escape(rest.strip())}$"))
                if not await place.count():
                    return f"there is no {rest.strip()[:40]}. "
                await place.first.click()
                await self._page.wait_for_load_state()
            elif what in ("type", "choose") and name.isidentifier():
                kind = "input" if what == "type" else "select"
                place = self._page.locator(f"{kind}[name={name}]:visible")
                if not await place.count():
                    return f"there is no {name[:40]}. "
                options = await place.first.locator("option").all_inner_texts()
                if what == "choose" and value not in options:
                    return f"{name} has no {value[:40]}. "
                await (place.first.fill(value[:200]) if what == "type" else place.first.select_option(label=value))
            else:
                return f"{ACTIONS}. "
        except Exception as error:  # noqa: BLE001 - what the browser cannot do is an answer to the action
            return f"error: {str(error).splitlines()[0][:120]}. "
        return ""

    async def _shown(self) -> str:
        self.seen = str(await self._page.evaluate(_READ))[:SHOWN]
        return self.seen

    def key(self) -> str:
        """The page as it is seen."""
        return self.seen

    def expert(self) -> str:
        """The first action of the plan whose result is not on the page."""
        item, many, way = self.position.wanted
        if self.position.pages and f"{item}, " not in self.seen.partition("|")[0]:
            return f"click {item}" if self.seen.startswith("Shop") else "back"
        if not self.position.pages and f"item=[{item}]" not in self.seen:
            return f"choose item {item}"
        if f"count=[{many}]" not in self.seen:
            return f"type count {many}"
        if way and f"by=[{way}]" not in self.seen:
            return f"choose by {way}"
        return "click order"

    async def close(self) -> None:
        if self._context is not None:
            with contextlib.suppress(Exception):
                await self._context.close()


def _plan(shop: Shop) -> tuple[str, ...]:
    return ("item", "count", *(["by"] if shop.wanted[2] else []), "order")


_starting: dict[int, asyncio.Task[Any]] = {}


async def _browser() -> Any:
    """The browser of this process, started when it is first needed, in the loop of its environments."""
    if os.getpid() not in _starting:
        _starting[os.getpid()] = asyncio.get_running_loop().create_task(_started())
    return await asyncio.shield(_starting[os.getpid()])


async def _started() -> Any:
    from playwright.async_api import async_playwright

    driver = await async_playwright().start()
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    flags += ["--disable-sync", "--no-first-run", "--disable-dev-shm-usage"]
    return await driver.chromium.launch(executable_path=chromium(), args=flags)


def chromium() -> str | None:
    """A Chromium of this machine; None leaves the choice to playwright."""
    named = os.environ.get("BURNISH_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)


class Browser(WorkFamily):
    """Level 1: an order by a form. Level 2: behind links, by one of three ways. Level 3: among more items."""

    name = "browser"
    summary = "order from a shop in a real headless browser: click, type, choose (several turns)"
    game = Browsing  # type: ignore[assignment]  # its methods are async, so it is no Game

    def __init__(self, level: int = 2, seed: int = 0, seat: str = "") -> None:
        super().__init__(level, seed, seat)
        if importlib.util.find_spec("playwright") is None:
            raise ValueError("the task browser needs playwright; install it with: pip install 'burnish[browser]'")

    def draw(self, dice: random.Random) -> Shop:
        names = dice.sample([f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS], (0, 3, 4, 8)[self.level])
        items = tuple((name, dice.randrange(2, 60)) for name in names)
        way = dice.choice(_SENT) if self.level > 1 else ""
        return Shop(items, (dice.choice(names), dice.randrange(2, 20), way), self.level > 1)
