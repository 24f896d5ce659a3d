"""The beginnings of a conversation: the same texts as rendering each by itself, in time linear in the messages."""

from __future__ import annotations

import random
from typing import Any

import pytest
from families import FAMILIES

from burnish.models import prefixes
from burnish.models.prefixes import WORTH, Prefixes
from burnish.models.template import Style, Template
from burnish.models.watched_messages import Rendered

VALUES = {"bos_token": "<s>", "eos_token": "</s>"}
SAY = "{{ '<|' + m.role + '|>' + (m.content or '') + '<|end|>\n' }}"
ASK = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
LOOP = "{% for m in messages %}" + SAY + "{% endfor %}"
TOOLS = (  # as Qwen2.5 writes the results of tools
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|user|>{% endif %}[{{ m.content }}]"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|end|>{% endif %}"
    "{% else %}" + SAY + "{% endif %}{% endfor %}" + ASK
)
LAST_QUESTION = (  # as Qwen3 leaves out the thoughts before it
    "{% set ns = namespace(found=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.found %}"
    "{% set ns.found = messages | length - loop.index %}{% endif %}{% endfor %}"
)
NS = "{% set ns = namespace(n=0) %}"
COUNT = "{% for m in messages %}{% set ns.n = ns.n + 1 %}" + SAY + "{% endfor %}"
FAST = {  # template -> whether every beginning is found without rendering it
    **{name: (family.template, True) for name, family in FAMILIES.items()},
    "the first is written apart": (
        "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{{ messages[0].content }}{% else %}"
        "{% set rest = messages %}{% endif %}{% for m in rest %}" + SAY + "{% endfor %}" + ASK,
        True,
    ),
    "numbers and what came before": (
        "{% for m in messages %}{{ loop.index }}{% if loop.changed(m.role) %}new{% endif %}"
        "{{ loop.previtem.role if loop.index0 else bos_token }}" + SAY + "{% endfor %}" + ASK,
        True,
    ),
    "a macro": (
        "{% macro say(m) %}" + SAY + "{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}" + ASK,
        True,
    ),
    "a count": (NS + COUNT + ASK, True),
    "it stops": (
        "{% for m in messages %}{% if m.content == 'm 9' %}{% break %}{% endif %}" + SAY + "{% endfor %}" + ASK,
        None,
    ),
    "an option": (Style(options="x=false").applied(LOOP + ASK + "{% if x %}{{ 'x' }}{% endif %}"), True),
    "tools": (TOOLS, None),
    "a count behind the loop": (NS + COUNT + "{{ ns.n }}" + ASK, False),
    "the last": ("{% for m in messages %}" + SAY + "{% if loop.last %}!{% endif %}{% endfor %}" + ASK, False),
    "the next": ("{% for m in messages %}" + SAY + "{{ (loop.nextitem or m).role }}{% endfor %}" + ASK, False),
    "by item": ("{% for m in messages %}" + SAY + "{{ loop['revindex'] }}{% endfor %}" + ASK, False),
    "how many": ("{{ messages | length }}" + LOOP + ASK, False),
    "the last role": (LOOP + "{% if add_generation_prompt and messages[-1].role == 'user' %}?{% endif %}", False),
    "the last question": (LAST_QUESTION + LOOP.replace("%}{{", "%}{{ loop.index0 < ns.found }}{{") + ASK, False),
    "two loops": (LOOP + LOOP + ASK, False),
    "an else": ("{% for m in messages %}" + SAY + "{% else %}none{% endfor %}" + ASK, False),
    "a choice": ("{% for m in messages if m.role != 'system' %}" + SAY + "{% endfor %}" + ASK, False),
    "generation in the loop": (
        "{% for m in messages %}{{ add_generation_prompt }}" + SAY + "{% endfor %}" + ASK,
        False,
    ),
    "generation in a macro": (
        "{% macro g() %}{{ add_generation_prompt }}{% endmacro %}{% for m in messages %}{{ g() }}"
        + SAY
        + "{% endfor %}",
        False,
    ),
    "a macro behind the loop": (
        NS + "{% macro g() %}{{ ns.n }}{% endmacro %}" + COUNT + "{{ g() }}" + ASK,
        False,
    ),
    "the loop itself": ("{% for m in messages %}" + SAY + "{{ loop | length }}{% endfor %}" + ASK, False),
    "as JSON": ("{{ messages | tojson }}" + LOOP + ASK, False),
    "as text": ("{{ messages }}" + LOOP + ASK, False),
    "a list": ("{% for m in messages | list %}" + SAY + "{% endfor %}" + ASK, False),
    "a system prompt": (Style(system="Be brief.").applied(LOOP + ASK), True),
    "one in the others": ("{% if messages[3] in messages %}x{% endif %}" + LOOP + ASK, None),
    "two ahead": (
        "{% for m in messages %}{{ (messages[loop.index0 + 2] or m).role }}" + SAY + "{% endfor %}" + ASK,
        False,
    ),
    "a loop in a loop": (
        "{% for m in messages %}" + SAY + "{% for n in messages %}{{ n.role[0] }}{% endfor %}{% endfor %}",
        False,
    ),
    "joined": ("{{ messages | map(attribute='role') | join }}" + LOOP + ASK, False),
    "a cycle": (
        "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}" + SAY + "{% endfor %}{{ c.current }}",
        False,
    ),
}


def talk(n: int, tools: bool = False) -> list[dict[str, Any]]:
    draw = random.Random(n)
    roles = ["system", *(draw.choice(["user", "assistant", *(["tool"] * tools)]) for _ in range(n - 1))]
    return [{"role": role, "content": f"m {i}"} for i, role in enumerate(roles)]


@pytest.mark.parametrize("name", FAST)
def test_every_beginning_is_what_it_is_when_rendered_by_itself(name: str) -> None:
    text, fast = FAST[name]
    messages = talk(WORTH + 5, name == "tools")[name == "gemma" :]
    template = Template(text, VALUES)
    found = Prefixes(template, messages, None)
    for count in range(1, len(messages) + 1):
        for generation in (False, True):
            expected = template.render(messages[:count], generation)
            assert found.text(count, generation).part(0) == expected, (count, generation)
    assert found.text(0, False).part(0) == ""
    assert fast is None or bool(found._points) == fast
    assert not fast or set(found._points) == set(range(1, len(messages)))


def test_results_of_tools_alone_are_rendered_again() -> None:
    """The template looks one message ahead, at results of tools: those beginnings that end with one are rendered."""
    messages = talk(60, tools=True)
    points = set(Prefixes(Template(TOOLS, VALUES), messages, None)._points)
    assert points == {k for k in range(1, 60) if messages[k - 1]["role"] != "tool"}


def test_a_template_that_fails_fails_as_before() -> None:
    refuses = Template(
        "{% for m in messages %}{% if m.content == 'm 12' %}{{ raise_exception('no') }}{% endif %}{% endfor %}", {}
    )
    with pytest.raises(ValueError, match="cannot render a conversation of system"):
        Prefixes(refuses, talk(20), None)


def test_the_work_is_linear_in_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five renders, whatever the number of beginnings."""
    rendered: list[int] = []
    render = Template.render

    def counted(self: Template, messages: list[Any], *given: Any) -> str:
        rendered.append(len(messages))
        return render(self, messages, *given)

    monkeypatch.setattr(Template, "render", counted)
    messages = talk(300)
    found = Prefixes(Template(LOOP + ASK, VALUES), messages, None)
    assert all(found.text(k, bool(k % 2)) for k in range(1, 300))
    assert sum(rendered) < 4 * len(messages) and len(rendered) == 5


def test_short_conversations_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_following", lambda text: pytest.fail("followed"))
    assert Prefixes(Template(LOOP + ASK, VALUES), talk(WORTH - 1), None).text(3, False).part(0)


def test_texts_that_share_a_beginning_are_compared_and_cut_as_texts() -> None:
    base = "abcdefgh"
    texts = [Rendered(base, n, tail) for n in range(9) for tail in ("", "d", "de", "xy")] + [Rendered.of("abcdex")]
    for one in texts:
        whole = one.part(0)
        assert len(one) == len(whole) and one.followed_by("z").part(0) == whole + "z"
        for a in range(11):
            assert [one.part(a, b) for b in range(a, 11)] == [whole[a:b] for b in range(a, 11)]
        for other in texts:
            assert one.startswith(other) == whole.startswith(other.part(0))
            for n in range(11):
                both = min(len(whole), len(other)) >= n
                assert one.agrees(other, n) == (both and whole[:n] == other.part(0)[:n])
