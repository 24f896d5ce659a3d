"""Scores of reward models in burnish and in plain transformers, and models that cannot read the policy's tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CHAT, SMALL, make_model
from families import FAMILIES, tokenizer_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import burnish
from burnish.checkpoint.checkpoint import publish_model
from burnish.core.roles import frozen, roles, trained
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.models.build import Models, build
from burnish.models.chat_style import styled_chat
from burnish.models.lora import Lora
from burnish.models.model import Model
from burnish.models.scored_end import after_turn, ending_with_the_turn
from burnish.models.template import TEMPLATES as CHATS
from burnish.models.template import Style, Template
from burnish.score.heads import end_outputs
from burnish.score.model import reward_model
from burnish.score.reading import end_scores

SAID = (("hello", "yes"), ("what is this?", "no idea at all"), ("x", "y"))
PADDING = ("own", "eos", "none")
LINE_END = CHAT.replace("<|end|>", "<|end|>\n") + "\n"  # as ChatML ends messages
TEMPLATES = {"plain end": CHAT, "line end": LINE_END}
each_template = pytest.mark.parametrize("template", TEMPLATES)


def padded_with(path: Path, padding: str, template: str = "plain end") -> Path:
    """The small model with a padding token of its own, with eos as padding, or without any."""
    make_model(path)
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    tokenizer.chat_template = TEMPLATES[template]
    tokenizer.save_pretrained(path)
    for file, name, eos in (("config", "pad_token_id", "eos_token_id"), ("tokenizer_config", "pad_token", "eos_token")):
        told = json.loads((path / f"{file}.json").read_text())
        told[name] = {"own": told[name], "eos": told[eos], "none": None}[padding]
        (path / f"{file}.json").write_text(json.dumps(told))
    return path


def saying_something(model: Model) -> Model:
    torch.manual_seed(1)
    for name, p in model.module.named_parameters():
        if "score" in name or "lora_B" in name:
            torch.nn.init.normal_(p, std=0.5)
    model.weights_moved()
    return model


def conversations(model: Model) -> list[Trace]:
    traces = []
    for asked, reply in SAID:
        prompt = Turn(model.chat.prompt(Task("question", asked, {}, asked)), "task")
        traces.append(Trace((prompt, Turn(model.chat.reply(reply), "policy", parent=prompt))))
    return traces


def ours(models: Models) -> torch.Tensor:
    traces = conversations(models["rm"])
    found = torch.stack(end_scores(traces, models["rm"], 4096))
    assert torch.allclose(end_outputs(traces, Step(Clock(0, 1), models, SMALL), "rm")[:, 0].float(), found)
    return found


def texts_of(tokenizer: Any) -> list[str]:
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}], tokenize=False
        )
        for asked, reply in SAID
    ]


@torch.no_grad()
def theirs(path: Path) -> tuple[torch.Tensor, torch.Tensor | None]:
    """By transformers alone: each conversation by itself, and all in one padded batch (None without padding token)."""
    model = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    texts = texts_of(tokenizer)
    alone = [model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0] for text in texts]
    if tokenizer.pad_token is None:
        return torch.cat(alone), None
    batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    return torch.cat(alone), model(**batch).logits[:, 0]


@each_template
@pytest.mark.parametrize("padding", PADDING)
def test_a_trained_reward_model_has_its_scores_in_transformers(padding: str, template: str, tmp_path: Path) -> None:
    base = padded_with(tmp_path / "base", padding, template)
    models = build({"rm": trained(outputs=1)}, base, SMALL, device="cpu")
    publish_model(saying_something(models["rm"]), tmp_path / "rm")
    alone, batch = theirs(tmp_path / "rm")
    assert torch.allclose(ours(models), alone, atol=1e-4)
    assert batch is not None and torch.allclose(ours(models), batch, atol=1e-4)
    again = build({"rm": frozen(str(tmp_path / "rm"), outputs=1)}, base, SMALL, device="cpu")
    assert torch.allclose(ours(again), alone, atol=1e-4)


@each_template
@pytest.mark.parametrize("padding", PADDING)
def test_a_reward_model_of_transformers_is_read_where_transformers_reads_it(
    padding: str, template: str, tmp_path: Path
) -> None:
    base = padded_with(tmp_path / "base", padding, template)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, trust_remote_code=False)
    torch.manual_seed(3)
    torch.nn.init.normal_(model.score.weight, std=0.5)
    model.save_pretrained(tmp_path / "rm")
    AutoTokenizer.from_pretrained(base, trust_remote_code=False).save_pretrained(tmp_path / "rm")
    models = build({"rm": frozen(str(tmp_path / "rm"), outputs=1)}, base, SMALL, device="cpu")
    alone, batch = theirs(tmp_path / "rm")
    assert torch.allclose(ours(models), alone, atol=1e-4)
    assert batch is None or torch.allclose(ours(models), batch, atol=1e-4)


def test_adapters_score_the_end_although_their_base_pads_with_eos(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="LoRA needs peft")
    base = padded_with(tmp_path / "base", "eos", "line end")
    models = build({"rm": trained(outputs=1)}, base, SMALL, device="cpu", lora=Lora(2))
    publish_model(saying_something(models["rm"]), tmp_path / "rm")
    again = build({"rm": frozen(str(tmp_path / "rm"), outputs=1)}, base, SMALL, device="cpu")
    assert torch.allclose(ours(again), ours(models), atol=1e-5)
    traces = conversations(models["rm"])
    ends = [torch.arange(len(trace)) == len(trace) - 1 for trace in traces]
    last = torch.stack([one["score"][-1] for one in models["rm"].streams(traces, ends, {"score"}, 4096)])
    assert torch.equal(ours(models), last), "what was trained is the last token"
    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "rm", trust_remote_code=False)
    plain.config.pad_token_id = tokenizer.pad_token_id
    adapted = peft.PeftModel.from_pretrained(plain, tmp_path / "rm").eval()
    batch = tokenizer(texts_of(tokenizer), return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.no_grad():
        assert torch.allclose(adapted(**batch).logits[:, 0], last, atol=1e-4)


@pytest.mark.parametrize("name", ["chatml", "line end"])
def test_a_template_that_ends_with_the_turn_renders_all_else_as_before(name: str) -> None:
    text = {**CHATS, **TEMPLATES}[name]
    end = "<|im_end|>" if name == "chatml" else "<|end|>"
    before, after = Template(text, {}), Template(ending_with_the_turn(text, end, "\n"), {})
    asked, said = {"role": "user", "content": "a\n"}, {"role": "assistant", "content": "b"}
    for messages in ([asked], [asked, said, asked], [said, asked]):
        for generation in (False, True):
            assert after.render(messages, generation) == before.render(messages, generation)
    assert after.render([asked, said], True) == before.render([asked, said], True)
    assert after.render([asked, said], False) + "\n" == before.render([asked, said], False)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_s_template_stops_at_the_end_of_a_last_reply(name: str) -> None:
    """Rendered and encoded by transformers, a conversation is then the tokens that a reward model was trained on."""
    tokenizer = tokenizer_of(FAMILIES[name])
    chat = styled_chat(tokenizer, Style(), name)
    task = Task("question", "the answer", {}, "the answer")
    trained_on = torch.cat([chat.prompt(task), chat.reply("an answer")]).tolist()
    if after := after_turn(chat):
        tokenizer.chat_template = ending_with_the_turn(chat.template.text, chat.turn_end[0], after)
    asked, said = {"role": "user", "content": "the answer"}, {"role": "assistant", "content": "an answer"}
    text = tokenizer.apply_chat_template([asked, said], tokenize=False)
    prompt = tokenizer.apply_chat_template([asked], tokenize=False, add_generation_prompt=True)
    assert tokenizer.encode(prompt, add_special_tokens=False) == chat.prompt(task).tolist()
    found = tokenizer.encode(text, add_special_tokens=False)
    assert text.endswith(FAMILIES[name].end) and found[-1] == trained_on[-1]
    if text.startswith(prompt + "an"):  # Mistral's writes a space before a reply, which a policy writes by itself
        assert found == trained_on
    else:
        assert name == "mistral"


def test_the_template_of_a_run_does_not_move_where_a_reward_model_is_read(tmp_path: Path) -> None:
    base = padded_with(tmp_path / "base", "own", "line end")
    models = build({"rm": trained(outputs=1)}, base, SMALL, device="cpu")
    publish_model(saying_something(models["rm"]), tmp_path / "rm")
    again = build({"rm": frozen(str(tmp_path / "rm"), outputs=1)}, base, SMALL, device="cpu", style=Style(LINE_END))
    assert torch.allclose(ours(again), ours(models), atol=1e-5)


def judge(path: Path, change: str) -> Path:
    """A reward model of transformers with another tokenizer, another template or none."""
    make_model(path)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1, trust_remote_code=False)
    model.save_pretrained(path)
    if change == "tokenizer":
        whole = json.loads((path / "tokenizer.json").read_text())
        ids = whole["model"]["vocab"]
        ids["a"], ids["e"] = ids["e"], ids["a"]
        (path / "tokenizer.json").write_text(json.dumps(whole))
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    tokenizer.chat_template = {
        "tokenizer": tokenizer.chat_template,
        "template": str(tokenizer.chat_template).replace("{{ m.content }}", " {{ m.content }}"),
        "no template": None,
    }[change]
    for file in path.glob("chat_template*"):
        file.unlink()
    tokenizer.save_pretrained(path)
    return path


def scored(models: Models) -> list[str]:
    """Score the policy's replies by the reward model; its warnings."""
    step = Step(Clock(0, 1), models, SMALL)
    groups = [Group(Task("question", "q", {}, "q"), conversations(models["policy"]))]
    reward_model().call(groups, step)
    assert all("reward" in trace.scores for trace in groups[0].traces)
    return models["rm"].warnings


def test_another_template_is_warned_of_and_another_tokenizer_reads_words(small_model: Path, tmp_path: Path) -> None:
    """With another tokenizer the score is that of transformers on what the reward model's own template writes."""
    cases: dict[str, Models] = {}
    for change in ("tokenizer", "template", "no template"):
        path = judge(tmp_path / change, change)
        cases[change] = build(roles(rm=frozen(str(path), outputs=1)), small_model, SMALL, device="cpu")
    assert scored(cases["no template"]) == []
    (warning,) = scored(cases["template"])
    assert "another chat template than the policy" in warning and "--chat-template" in warning
    models = cases["tokenizer"]
    step = Step(Clock(0, 1), models, SMALL)
    task = Task("question", ({"role": "user", "content": "a bee, an ape"},), {}, "q")
    replies = ["each a tea", "bees"]
    chat, tokenizer = models["policy"].chat, AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    prompt = Turn(chat.prompt(task), "task")
    traces = [Trace((prompt, Turn(chat.reply(text), "policy", parent=prompt)), i) for i, text in enumerate(replies)]
    reward_model().call([Group(task, traces)], step)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tokenizer").eval()
    for trace, text in zip(traces, replies, strict=True):
        said = [*task.prompt, {"role": "assistant", "content": text}]
        ids = tokenizer.apply_chat_template(said, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            wanted = float(theirs(ids).logits[0, 0])
        assert trace.scores["reward"] == pytest.approx(wanted, abs=1e-4)
        assert trace.turns[0] is prompt and trace.authors() == ("task", "policy")
    assert traces[0].scores["reward"] != pytest.approx(traces[1].scores["reward"], abs=1e-6)
    episode = Trace((*traces[0].turns, Turn(chat.observation("on"), "env", parent=traces[0].turns[-1])))
    with pytest.raises(ValueError, match="'rm' has another tokenizer than the policy"):
        reward_model().call([Group(task, [episode])], step)


def test_a_reward_model_without_its_tokenizer_is_refused(small_model: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(small_model, num_labels=1, trust_remote_code=False)
    model.save_pretrained(tmp_path / "rm")
    with pytest.raises(ValueError, match=r"there is no tokenizer in .*rm; write that of the model there"):
        build(roles(rm=frozen(str(tmp_path / "rm"), outputs=1)), small_model, SMALL, device="cpu")


@pytest.mark.parametrize("how", ["critic"])
def test_a_run_refuses_a_model_that_reads_other_words(how: str, small_model: Path, tmp_path: Path) -> None:
    path = judge(tmp_path / "rm", "tokenizer")
    given = {how: f"rm({path})" if how == "reward" else str(path)}
    with pytest.raises(ValueError, match="has another tokenizer than the model that it is to read tokens of"):
        burnish.train(
            "ppo" if how == "critic" else "grpo",
            model=str(small_model),
            task="sort",
            steps=1,
            prompts=2,
            n=2,
            max_new_tokens=4,
            eval_tasks=0,
            device="cpu",
            out=str(tmp_path / "run"),
            **given,
        )
