"""Learning from one's own samples as if they were demonstrations: the kept, the best, the relabelled, the explained."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.REJECTION_SAMPLING,
    family="imitation",
    summary="Sample, keep the verified, imitate them.",
    when="You have a verifier and want nothing more than SFT.",
)
def rejection_sampling(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    most: Annotated[int, Option("Kept replies of one prompt, so that easy prompts do not dominate.", at_least=1)] = 10,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Rejection-sampling fine-tuning, or expert iteration (ReST-EM, STaR).

    E step: y_i ~ pi(.|x), i = 1..n, kept where the verifier accepts them (different ones, at most `most` of a prompt)
    M step: L = -(1 / N) sum over the N tokens of the kept replies of log pi

    Departures: ReST-EM samples for all its problems in a round, and both it and STaR train the base model anew on
    each round's replies; here a round is one step and the policy goes on from where it is, as in expert iteration.
    STaR's rationalisation (a hint with the answer, where all replies fail) is left out. n, most and temperature are
    choices of ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        select=select.keep_verified(most),
        learn=learn.Learn(learn.imitate(), updates=updates, logp_temperature=1.0),
        models=roles(),
    )


@register(
    papers.RAFT,
    family="imitation",
    summary="Sample, rank by reward, imitate the best of each prompt.",
    when="You have a reward model and want nothing more than SFT.",
)
def raft(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    best: Annotated[int, Option("Replies of each prompt that are kept.", at_least=1)] = 1,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Reward-ranked fine-tuning.

    y* = argmax over y_1..y_n ~ pi(.|x) of r(x, y);   L = -(1 / N) sum over the N tokens of the chosen replies of log pi

    Ranking is local, within each prompt. Left out: ranking over all prompts together, and the optional penalty beta
    log pi/ref in the reward. n and temperature are choices of ours. Ties go to the earlier sample, so that a prompt
    of equal replies still teaches.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.keep_best(best),
        learn=learn.Learn(learn.imitate(), updates=updates, logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.SUPERHF,
    family="imitation",
    summary="Imitate the best of many samples, held by a full KL to the starting model.",
    when="As `raft`, when imitating one's own best replies drifts too far from the start.",
)
def superhf(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    beta: Annotated[float, Option("Weight of the KL; 0 loads no reference.", at_least=0)] = 0.7,
    temperature: opt.Temperature = 1.0,
    top_p: opt.TopP = 0.95,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SuperHF: supervised learning on the best of a superbatch, with the prior kept by a KL.

    y* = argmax over n samples of r;   L = -(1 / N) sum over the N tokens of y* of log pi
      + beta mean over replies of mean over tokens of KL(p_0 || pi), over the whole vocabulary, p_0 the starting model

    The KL is the forward one, as in the released code; it is never negative, so the code's max(0, KL) changes
    nothing. The code sums it over the 2 replies of an update with beta 0.35, which is the mean with beta 0.7.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, top_p=top_p),
        score=score.scoring(task, reward_model),
        select=select.keep_best(1),
        learn=learn.Learn(
            learn.imitate(),
            learn.distil(0.0, teacher="ref", norm=learn.seq_mean, coef=beta, name="prior"),
            logp_temperature=1.0,
        ),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.HIR,
    family="imitation",
    summary="Relabel each sample with the instruction that it met, and imitate it under that.",
    when="Wrong replies should teach too, through another instruction, without a reward in the loss.",
    trial={"n": 2, "updates": 1},
)
def hir(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    smoothing: Annotated[float, Option("Share of the target spread over other tokens.", at_least=0, below=1)] = 0.2,
    contrastive: Annotated[float, Option("Weight of the contrast.", at_least=0)] = 1.0,
    entropy: opt.EntropyCoef = 0.001,
    updates: opt.Updates = 10,
    right: Annotated[str, Option("Words before the prompt in sampling, and of replies that are right.")] = "",
    wrong: Annotated[
        str, Option("Words before the prompt of replies that are wrong.")
    ] = "Solve the question with wrong answer.",
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Hindsight instruction relabelling.

    A reply y sampled under `right` is repeated under the instruction i that it met (right or wrong); i' is the other.
    L = mean over replies of mean over tokens of [ -(1-s) log pi(y_t|x,i) - s mean over v of log pi(v) - entropy H(pi) ]
      + contrastive mean over replies of [ -(1-s) log P - s log(1 - P) ],   s = smoothing
    P = p(y|x,i) / (p(y|x,i) + p(y|x,i'))
    p(y|.) = the geometric mean of the token probabilities;  only a random contiguous piece of y is trained

    The constants are the released code's. Its label smoothing leaves a fifth of the probability to other tokens:
    greedy answers do not mind, but free sampling draws them, so on `tiny` held-out accuracy falls; with smoothing 0
    it rises. Departures: a step is a round; the instruction to be right is the bare prompt unless words are given,
    so that the product is asked like any other model.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.under(right, rollout.sample(n, temperature=temperature)),
        score=score.verify(task),
        select=select.relabel(right, wrong),
        credit=chain(credit.claim("sft", "hindsight", tag="own"), credit.claim("bonus", "hindsight", tag="own")),
        learn=learn.Learn(
            learn.imitate_smoothed(smoothing, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, norm=learn.seq_mean, on=learn.CLAIMED, name="bonus"),
            learn.contrast(smoothing, coef=contrastive, on="hindsight"),
            updates=updates,
        ),
        models=roles(),
    )


@register(
    papers.LETI,
    family="imitation",
    summary="Model one's own replies together with what the verifier said of them.",
    when="The verifier says in words what went wrong, as compilers do.",
)
def leti(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    good: Annotated[str, Option("Words before the prompt in sampling, and of replies that pass.")] = "",
    bad: Annotated[str, Option("Words before the prompt of replies that fail.")] = "<|bad|>",
    updates: opt.Updates = 3,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Learning from textual interactions: feedback-conditioned fine-tuning on the policy's own replies.

    text = condition (good or bad) + the verifier's words, where the reply failed + question + sampled reply
    L = -(1 / N) sum over the N tokens of the texts, but for their first, of log pi

    No solution is written by hand: replies that fail are learned under `bad` and the reason. The order of the text, the
    loss on all of it and the 3 epochs are the released code's. Departures: that code samples 128 replies and mixes
    in pre-training text, which a task does not give; the good condition is the bare prompt unless words are given,
    so that the product is asked like any other model (the paper: "<|good|>").
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.under(good, rollout.sample(n, temperature=temperature)),
        score=score.verify(task),
        select=select.with_feedback(good, bad),
        learn=learn.Learn(learn.imitate(on=("task", "policy")), updates=updates),
        models=roles(),
    )
