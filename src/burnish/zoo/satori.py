"""Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search
(arXiv 2502.02508).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, score
from burnish.core.parts import Part, Rollout, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, Sampling, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.resets import Begun, check_count, first_tokens, in_groups, line_ends, random_for
from burnish.rollout.sample import continue_from
from burnish.score.judge import judge_traces, require_verifier
from burnish.score.reading import end_scores, require_same_tokens
from burnish.score.shape import Moments
from burnish.tasks.source import Source

SATORI = Paper(
    "satori",
    "2502.02508",
    "Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search",
)


@supplies("tokens:past", "tokens:cue")
def restarted(
    source: Source, n: int, back: int, cue: str, *, temperature: float | None = None, who: str = "policy"
) -> Rollout:
    """n replies per task, then one more from the middle of a right one and one from the middle of a wrong one.

    The first right and the first wrong reply, where there are such, lose their last t lines (t uniform in 0 .. back;
    their stop token goes too) and become a turn by "past"; the words of `cue`, on a line of their own, follow as a turn
    by "cue" (none where there are no words); then the policy goes on.
    Those traces carry the tag "from right" or "from wrong".
    """
    check_count(n)
    require_verifier(source)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, clock = step.models[who], step.clock
        chat = model.chat
        begun = [(task, (Turn(chat.prompt(task), "task"),), i) for task in tasks for i in range(n)]
        groups = in_groups(tasks, continue_from(begun, who, step, tag="sample", temperature=temperature), n)
        starts: list[Begun] = []
        for k, trace, right in _first_right_and_wrong(source, groups, chat):
            prompt, said = trace.turns
            dice = random_for(clock, "restart", tasks[k], right)
            kept = len(said) - 1 if not (t := dice.randint(0, back)) else _without_lines(said.tokens, t, chat)
            past = first_tokens(said, kept, "past")
            turns = (prompt, past, *_cue(past, cue, chat))
            if len(Trace(turns)) < model.context:
                starts.append((tasks[k], turns, k * 2 + right))
        for (_, _, number), trace in zip(starts, _restart(starts, who, step, temperature), strict=True):
            group = groups[number // 2]
            trace.index, trace.tags = len(group.traces), frozenset({"from right" if number % 2 else "from wrong"})
            group.traces.append(trace)
        return groups

    return Rollout(
        name=f"restarted({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "past", "cue", who))
        | names("mu", who)
        | names("tag", ("from right", "from wrong")),
    )


def _without_lines(tokens: Tensor, t: int, chat: Chat) -> int:
    """How many tokens are left when the last t lines go; at least 1."""
    body = tokens[:-1]
    starts = [0, *(end for end in line_ends(body, chat) if end < len(body))]
    return max(1, starts[max(0, len(starts) - t)])


def _cue(past: Turn, words: str, chat: Chat) -> list[Turn]:
    if not words:
        return []
    text = f"{words}\n" if chat.text(past.tokens).endswith("\n") else f"\n{words}\n"
    return [Turn(chat.written(text), "cue", parent=past)]


def _restart(starts: list[Begun], who: str, step: Step, temperature: float | None) -> list[Trace]:
    keyed = [
        (task, turns, number % 2) for task, turns, number in starts
    ]  # noise by the task and the kind, not the batch
    return continue_from(keyed, who, step, tag="restart", temperature=temperature)


def _first_right_and_wrong(source: Source, groups: list[Group], chat: Chat) -> list[tuple[int, Trace, int]]:
    """(group, trace, 1 or 0) for the first right and the first wrong reply of more than one token in every group."""
    asked = [(k, group.task, trace) for k, group in enumerate(groups) for trace in group.traces]
    verdicts = judge_traces(source, [(task, trace) for _, task, trace in asked], chat)
    found: dict[tuple[int, int], Trace] = {}
    for (k, _, trace), verdict in zip(asked, verdicts, strict=True):
        if len(trace.turns[-1]) > 1:
            found.setdefault((k, int(verdict.correct)), trace)
    return [(k, trace, right) for (k, right), trace in found.items()]


@supplies("score:preference")
def squashed_model(moments: Moments, model: str = "rm") -> Part:
    """preference = sigmoid of the model's score, standardised (Satori, arXiv 2502.02508).

    Mean and deviation are running moments of the model's scores, this batch's included.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        require_same_tokens(model, "policy", step)
        found = end_scores(traces, step.models[model], step.settings.token_budget)
        raw = [float(score.flatten()[0]) for score in found]
        moments.see(raw)
        standard = torch.tensor([(value - moments.mean) / moments.std for value in raw])
        for trace, value in zip(traces, torch.sigmoid(standard).tolist(), strict=True):
            trace.scores["preference"] = value
        return groups

    return Part(
        name=f"squashed_model({model})",
        call=call,
        reads=frozenset({"tokens:policy", f"model:{model}.score"}),
        writes=frozenset({"score:preference"}),
        state=(moments,),
    )


@supplies("score:shaped")
def reflection_reward(bonus: float, *adds: str) -> Part:
    """Satori's reward (arXiv 2502.02508): shaped = (1[correct] - 1) + the scores in `adds` + reflection bonus.

    Reflection bonus: +bonus if a restart from a wrong reply ends correct, -bonus if one from a correct reply ends
    wrong.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        right = bool(trace.scores["correct"])
        mended = "from wrong" in trace.tags and right
        broken = "from right" in trace.tags and not right
        trace.scores["shaped"] = float(right) - 1 + bonus * (mended - broken) + sum(trace.scores[name] for name in adds)
        if "from wrong" in trace.tags:
            step.notes.add("mended", mended)
        if "from right" in trace.tags:
            step.notes.add("broken", broken)

    return per_trace(
        write,
        name=f"reflection_reward({bonus:g})",
        reads=frozenset({"score:reward", "tag:from right", "tag:from wrong", *(f"score:{name}" for name in adds)}),
        writes=frozenset({"score:shaped"}),
    )


@register(
    SATORI,
    family="hybrid",
    summary="PPO that restarts in the middle of right and wrong replies, and rewards mending them.",
    when="The model should learn to notice and mend its own mistakes.",
    trial={"n": 2, "updates": 1},
)
def satori(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies from the question for each prompt.", at_least=1)] = 4,
    bonus: Annotated[float, Option("For mending a wrong reply, and against breaking a right one.", at_least=0)] = 0.5,
    back: Annotated[int, Option("Most lines that a restart drops.", at_least=0)] = 2,
    cue: Annotated[str, Option("The words after which the policy looks again; none if empty.")] = "Check again.",
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 25.0,
    reward_model: Annotated[
        str | None, Option("The directory of a reward model, whose squashed score is added.")
    ] = None,
) -> Method:
    """Satori's restart-and-explore: replies from the question, and from the middle of a right and of a wrong reply.

    a restart drops the last t lines of a reply, t uniform in 0 .. back, adds the words of `cue`, and the policy goes on
    r = (1[correct] - 1) + sigmoid(standardised reward model, if there is one)
      + bonus [wrong made right] - bonus [right made wrong]
    A_t, R_t by GAE(1, lam), the reward at the last token, A whitened
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    Departures: the meta-action tokens (<|continue|>, <|reflect|>, <|explore|>) and the format tuning that teaches
    them are left out, so an action is a line and plain words stand for <|reflect|> (a model that does not know them
    must first learn to go on from them); the replies that are restarted are of the present policy and of this step,
    where the paper prepares them before training; the reward model is standardised by running moments of its scores,
    where the code uses moments stored with it; n, back, value_coef and updates are choices of ours. critic_lr is the
    released script's: 5e-6 for the critic, 2e-7 for the policy.
    """
    preference = [squashed_model(score.Moments("preferences"))] if reward_model else []
    return method(
        draw=draw.prompts(task),
        rollout=restarted(task, n, back, cue),
        score=chain(
            score.verify(task), *preference, reflection_reward(bonus, *(["preference"] if reward_model else []))
        ),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", value="value"),
            credit.token_rewards(score="shaped", kl=None),
            credit.gae(lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(critic=trained(outputs=1, lr=critic_lr), **score.rm_role(reward_model)),
        sampling=Sampling(0.6),
    )
