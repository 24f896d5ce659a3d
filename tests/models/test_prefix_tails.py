"""Beginnings rendered from the first message on that may have another text: the same texts, in linear work."""

from __future__ import annotations

import random
from typing import Any

import pytest

from burnish.models import prefix_tails
from burnish.models.prefix_tails import Bounds, Need, Tails
from burnish.models.prefixes import Prefixes
from burnish.models.template import Style, Template
from burnish.models.template_sandbox import Sandbox

SAY = "{{- '<|' + m.role + '|>' + (m.content or '') + '<|end|>\n' }}"
ASK = "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
LATEST = (  # Qwen3: thoughts stay behind the last question, which is looked for from the end
    "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}"
    "{%- set ns = namespace(open=true, last=messages|length - 1) %}"
    "{%- for m in messages[::-1] %}{%- set at = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.open and m.role == 'user' and m.content is string and not m.content.startswith('<result>') %}"
    "{%- set ns.open = false %}{%- set ns.last = at %}{%- endif %}{%- endfor %}"
)
REPLIES = (
    "{%- for m in messages %}{%- set said = m.content if m.content is string else '' %}"
    "{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}" + SAY + "{%- elif m.role == 'assistant' %}"
    "{%- set thought = '' %}{%- if '</think>' in said %}{%- set thought = said.split('</think>')[0] %}"
    "{%- set said = said.split('</think>')[-1] %}{%- endif %}"
    "{%- if loop.index0 > ns.last and (loop.last or thought) %}{{- '<think>' + thought + '</think>' }}{%- endif %}"
    "{{- said + '<|end|>' }}{%- elif m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|user|>' }}{%- endif %}{{- said }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|end|>' }}{%- endif %}"
    "{%- endif %}{%- endfor %}"
)
FORWARD = (  # GLM: the same, looked for from the first message on
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
)
FORMS = {
    "as Qwen3": LATEST + REPLIES + ASK,
    "looked for from the front": FORWARD + REPLIES + ASK,
    "on the other side": LATEST + REPLIES.replace("loop.index0 > ns.last", "not ns.last >= loop.index0") + ASK,
    "up to a message": LATEST + REPLIES.replace("loop.index0 > ns.last", "ns.last <= loop.index0") + ASK,
    "with a sum": LATEST + REPLIES.replace("> ns.last", "> ns.last + 1") + ASK,
    "two comparisons": LATEST + REPLIES.replace("> ns.last", "> ns.last and ns.last < loop.index0 - 1") + ASK,
    "an equal number": LATEST + REPLIES.replace("> ns.last", "== ns.last + 1") + ASK,
    "the last role is read": LATEST + REPLIES + "{%- if messages[-1].role == 'user' %}{{- '?' }}{%- endif %}" + ASK,
    "names that a list lacks": "{{- messages.first is defined or messages.messages is defined }}"
    + LATEST
    + REPLIES
    + ASK,
    "how many there are, first": "{{- messages|length }}" + LATEST + REPLIES + ASK,
    "how many there are, in the loop": LATEST + REPLIES.replace("loop.last", "loop.revindex == 1") + ASK,
    "the first apart": (
        "{%- set rest = messages %}{%- if messages[0].role == 'system' %}{{- messages[0].content }}"
        "{%- set rest = messages[1:] %}{%- endif %}{%- set n = messages|length %}{%- for m in rest %}"
        + SAY
        + "{%- if loop.index + 3 > n %}{{- (loop.nextitem or loop.previtem or m).role }}{%- endif %}"
        + "{%- endfor %}"
        + ASK
    ),
    "a loop in the loop": LATEST
    + REPLIES.replace("{%- set thought", "{%- for i in range(ns.last) %}.{%- endfor %}{%- set thought", 1)
    + ASK,
}
LOST = {  # whose loop cannot begin later
    "a count": "{%- set ns = namespace(n=0) %}{%- for m in messages %}{%- set ns.n = ns.n + 1 %}{{- ns.n }}"
    + SAY
    + "{%- if loop.last %}!{%- endif %}{%- endfor %}",
    "a change": "{%- for m in messages %}{{- loop.changed(m.role) }}{%- if loop.last %}!{%- endif %}{%- endfor %}",
    "a prompt in the loop": "{%- for m in messages %}{{- add_generation_prompt }}{{- loop.last }}{%- endfor %}",
}


def talk(length: int, seed: int, roles: str = "uuaaat") -> list[dict[str, Any]]:
    dice = random.Random(seed)
    names = {"u": "user", "a": "assistant", "t": "tool"}
    messages = [{"role": "system", "content": "Be brief."}] * dice.randrange(2)
    for number in range(length):
        said = dice.choice([f"m {number}", f"<think>hm {number}</think>m {number}", "<result>3"])
        messages.append({"role": names[dice.choice(roles)], "content": said})
    return messages


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("roles", ["uuaaat", "ua", "aaaaat", "uaaaatttt"])
def test_every_beginning_is_what_it_is_when_rendered_by_itself(name: str, roles: str) -> None:
    template = Template(FORMS[name], {})
    for seed in range(3):
        messages = talk(20, seed, roles)
        found = Prefixes(template, messages, None)
        counts = [*range(len(messages) + 1), *random.Random(seed).choices(range(len(messages) + 1), k=15)]
        for count in counts:  # in order, as a conversation is cut; then in any
            for generation in (False, True):
                if count or (generation and "[0]" not in FORMS[name] and "[-1]" not in FORMS[name]):
                    expected = template.render(messages[:count], generation)
                    assert found.text(count, generation).part(0) == expected, (seed, count, generation)
        assert found._resumed()._lead is not None


@pytest.mark.parametrize("name", LOST)
def test_a_template_of_another_form_is_rendered_by_itself(name: str) -> None:
    template, messages = Template(LOST[name], {}), talk(20, 0)
    found = Prefixes(template, messages, None)
    assert found._resumed().text(5, False) is None
    for count in range(1, len(messages)):
        assert found.text(count, True).part(0) == template.render(messages[:count], True)


def test_a_system_prompt_of_the_run_is_written_as_ever() -> None:
    template = Template(Style(system="Be kind.").applied(FORMS["as Qwen3"]), {})
    for messages in (talk(20, 0), talk(20, 1)):  # with and without a system message
        found = Prefixes(template, messages, None)
        for count in range(1, len(messages)):
            assert found.text(count, False).part(0) == template.render(messages[:count], False)


AGENT = [{"role": "user", "content": "do it"}] + [
    {"role": ("assistant", "tool")[i % 2], "content": ("<think>hm</think>call", "result")[i % 2]} for i in range(1999)
]
CHAT = [{"role": ("user", "assistant")[i % 2], "content": f"m {i}"} for i in range(2000)]
TASKS = [{"role": "user", "content": "next"} if i % 100 == 0 else AGENT[1 + i % 2] for i in range(2000)]


@pytest.mark.parametrize("messages", [AGENT, CHAT, TASKS], ids=["agent", "chat", "tasks"])
def test_the_work_is_linear_in_2000_messages(messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 beginnings: the template is rendered once for the whole, and its loops take a few turns for each."""
    renders, turns = [0], [0]
    render, turn = Template.render, Sandbox._turn

    def counted(self: Template, *given: Any) -> str:
        renders[0] += 1
        return render(self, *given)

    def counted_turn(self: Sandbox, count: int = 1) -> None:
        turns[0] += count == 1
        turn(self, count)

    monkeypatch.setattr(Template, "render", counted)
    monkeypatch.setattr(Sandbox, "_turn", counted_turn)
    template = Template(FORMS["as Qwen3"], {})
    found = Prefixes(template, messages, None)
    texts = {k: found.text(k, k % 2 == 0) for k in range(1, 2000)}
    assert renders[0] == 1 and turns[0] < 30_000  # rendered by themselves they take 2,000 x 2,000 x 4
    for k in (1, 2, 777, 1998, 1999):
        assert texts[k].part(0) == template.render(messages[:k], k % 2 == 0)


def test_bounds_are_the_numbers_for_which_a_comparison_has_the_same_answer() -> None:
    template = Template("{%- set n = messages|length %}{%- for m in messages %}{{- OP }}{%- endfor %}", {})
    messages = [{"role": "user", "content": "x"}] * 20
    for compared, truth in {"n < 7": False, "n <= 7": False, "7 < n": True, "7 >= n": False, "n > 20": False}.items():
        text = template.text.replace("OP", compared)
        tails = Tails(Template(text, {}), messages, None, Template(text, {}).render(messages, False))
        (bounds,) = tails._whole.needs[0].values.values()
        held = [n for n in range(30) if bounds.hold(n)]
        assert held == [n for n in range(30) if eval(compared, {"n": n}) == truth]
    assert Bounds(low=3).within(Bounds(high=5)) == Bounds(low=3, high=5)
    assert Bounds(value=True, exact=True).within(Bounds(high=5)).hold(True)
    assert not Bounds(value=True, exact=True).hold(1)
    assert not Need(seen=4).met(3, {}) and Need(seen=4).met(4, {}) and not Need(end=True).met(9, {})


def test_a_template_that_fails_is_left_to_fail_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FORMS["as Qwen3"].replace(
        "{%- set thought", "{%- if ns.last == 0 %}{{- raise_exception('no') }}{%- endif %}{%- set thought", 1
    )
    found = Prefixes(Template(text, {}), CHAT[:20], None)
    with pytest.raises(ValueError, match="cannot render a conversation of user, assistant"):
        found.text(2, False)
    assert found.text(4, False).part(0) and prefix_tails._resumer(text) is not None
