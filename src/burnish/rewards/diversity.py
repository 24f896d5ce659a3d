"""Shapes that pay for replies which differ from their siblings or from the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch

from burnish import papers
from burnish.core.method import Option, Step, Trace
from burnish.core.randomness import rng
from burnish.core.state import State
from burnish.rewards import Scorer, register_shape
from burnish.rewards.embedding import NEEDS, Embedding, replies
from burnish.rewards.lengths import Coef, Weight
from burnish.rewards.packed import packed, unpacked
from burnish.rewards.shaped import Scored, mixed, of_batch
from burnish.score.judge import reply_text
from burnish.score.maths.repetition import References
from burnish.score.maths.similarity import crowding, embedded
from burnish.tasks.source import Source

BLEU = (3, 4, 5)
MOST_CHARACTERS = 4000  # of a reply that is remembered


@register_shape(
    papers.DRA_GRPO,
    summary="The reward divided by how much the reply resembles its siblings.",
    when="Replies to a prompt become copies of each other.",
    example="burnish train grpo --shape dra",
)
def dra(task: Source, *, embedding: Embedding = "words", coef: Coef = 1.0) -> Scorer:
    """r'_i = r_i / (sum over j of max(0, cos(e_i, e_j)) + 1e-6), over the replies to the prompt, itself included.

    n copies: r / n each; a reply unlike all others keeps r. r' = (1 - coef) r + coef of it. Similarities are taken
    within the group alone (the released code takes them over the replies of one process, which can mix prompts), and
    negative cosines count as 0, so the sum is at least 1. The paper embeds with a small sentence model; here a reply
    is its hashed n-grams, or the mean hidden state of the policy, which costs a forward pass and whose cosines are all
    high (0.9 and more): it separates less. A negative reward becomes less negative where replies are alike: keep
    rewards at 0 or above.
    """
    embed = replies(embedding)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        vectors = iter(embed([trace for scored in batch for trace in scored.traces], step))
        found = []
        for scored in batch:
            crowds = crowding([next(vectors) for _ in scored.traces])
            found.append([mixed(r, r / (n + 1e-6), coef) for r, n in zip(scored.rewards, crowds, strict=True)])
            step.notes.add("alike", sum(crowds) / len(crowds) / len(crowds))
        return found

    return of_batch(f"dra({embedding})", change, coef=coef, reads=NEEDS[embedding])


class PastReplies:
    """A uniform sample of all past replies (reservoir sampling), and the sum of the vectors of all of them.

    The mean cosine with all past replies needs no memory of them: it is e . (sum of their unit vectors) / their number.
    """

    def __init__(self, size: int) -> None:
        self.name, self.size, self.seen = "curiosity_past_replies", size, 0
        self.texts: list[str] = []
        self.total: np.ndarray | None = None

    def add(self, texts: Sequence[str], vectors: Sequence[np.ndarray], seed: int) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            self.seen += 1
            if len(self.texts) < self.size:
                self.texts.append(text[:MOST_CHARACTERS])
            elif (place := rng(seed, self.name, self.seen).randrange(self.seen)) < self.size:
                self.texts[place] = text[:MOST_CHARACTERS]
            self.total = vector if self.total is None else self.total + vector

    def mean_cosine(self, vector: np.ndarray) -> float:
        return 0.0 if self.total is None else float(vector @ self.total) / self.seen

    def state_dict(self) -> State:
        total = None if self.total is None else packed(self.total)
        return {"seen": self.seen, "texts": list(self.texts), "total": total}

    def load_state_dict(self, state: State) -> None:
        self.seen, self.texts = int(state["seen"]), [str(text) for text in state["texts"]]
        self.total = None if state["total"] is None else unpacked(state["total"])


@register_shape(
    papers.CURIOSITY_RED_TEAMING,
    summary="A bonus for replies unlike all earlier ones of the run, by words and by meaning, and for entropy.",
    when="The policy should keep finding new replies: red-teaming prompts, test inputs, ideas.",
    example="burnish train ppo --task topics.jsonl --reward my.py:toxicity --shape curiosity",
)
def curiosity(
    task: Source,
    *,
    bleu: Annotated[float, Option("Weight of SelfBLEU.", at_least=0)] = 0.5,
    cosine: Annotated[float, Option("Weight of the mean cosine with all earlier replies.", at_least=0)] = 1.0,
    entropy: Annotated[float, Option("Weight of -log pi per token.", at_least=0)] = 0.01,
    memory: Annotated[int, Option("Earlier replies that SelfBLEU compares with.", at_least=1)] = 1000,
) -> Scorer:
    """r - bleu mean over n = 3, 4, 5 of BLEU-n(y; past) - cosine mean cos(e(y), past) + entropy mean(-log pi(y_t)).

    Replies are remembered after the batch is scored, so the first batch has no past: both bonuses are 0 there. SelfBLEU
    compares with a uniform sample of the past, kept by reservoir sampling; the cosine with all of it. The policy is the
    attacker of the paper: what it writes is a prompt, and --reward asks the target and judges its answer (a function of
    yours), where the paper also takes 1 x P(gibberish). Embeddings are hashed n-grams (the paper: a sentence model).
    The entropy bonus is a mean over the reply instead of a reward per token. For defensive evaluation.
    """
    past = PastReplies(memory)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        chat = step.models["policy"].chat
        texts = [[reply_text(trace, chat) for trace in scored.traces] for scored in batch]
        vectors = [[embedded(text) for text in own] for own in texts]
        known = References([text.split() for text in past.texts] if bleu else [], max(BLEU))
        found = []
        for scored, own, its in zip(batch, texts, vectors, strict=True):
            rewards = []
            for r, trace, text, vector in zip(scored.rewards, scored.traces, own, its, strict=True):
                alike = sum(known.bleu(text.split(), n) for n in BLEU) / len(BLEU)
                near = past.mean_cosine(vector)
                step.notes.add("self_bleu", alike)
                rewards.append(r - bleu * alike - cosine * near + entropy * _surprise(trace))
            found.append(rewards)
        past.add([t for own in texts for t in own], [v for its in vectors for v in its], step.clock.seed)
        return found

    return of_batch("curiosity", change, coef=max(bleu, cosine, entropy), state=(past,))


def _surprise(trace: Trace) -> float:
    """The mean of -log pi over the policy's tokens, as sampled; 0 where they are unknown."""
    known = [turn.logp for turn in trace.turns if turn.author == "policy" and turn.logp is not None and len(turn)]
    return -float(torch.cat(known).mean()) if known else 0.0


@register_shape(
    summary="A bonus for replies that no sibling equals.",
    when="Copies in a group should not be paid twice; cheaper and blunter than dra.",
    example="burnish train grpo --shape 'distinct(0.1)'",
)
def distinct(task: Source, weight: Weight = 0.1) -> Scorer:
    """r + weight (1 / c - 1), c the number of replies to the prompt with the same tokens: only copies lose."""

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        found = []
        for scored in batch:
            said = [tuple(trace.tokens[trace.by("policy")].tolist()) for trace in scored.traces]
            rows = zip(scored.rewards, said, strict=True)
            found.append([r + weight * (1 / said.count(own) - 1) for r, own in rows])
        return found

    return of_batch(f"distinct({weight:g})", change, coef=weight)
