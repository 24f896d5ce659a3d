"""Value-based learning: the language model is itself the Q-function."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage, trained
from burnish.credit.gae import token_rewards
from burnish.credit.members import member
from burnish.credit.streams import streams, token_ids
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms import imitate
from burnish.learn.terms.dueling import dueling_policy, dueling_value, no_advantage_lost
from burnish.method import Method, Phase
from burnish.methods.table import register
from burnish.parts import Part, chain
from burnish.rollout.given import given
from burnish.rollout.sample import join, sample
from burnish.schedules import after, before
from burnish.score.shape import spread
from burnish.score.verify import verify
from burnish.tasks.source import Source

MOST = 1.0  # the largest reward, and so the largest value


@register(
    family="policy",
    catalogue=("b-coder",),
    title="B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis",
    arxiv="2310.03173",
    summary="The logits are read as advantages of a dueling Q, backed up along the start's greedy choice.",
    when="You have demonstrations and many scored replies of an older model: value-based learning reuses them all.",
    trial={"value_steps": 1},
)
def b_coder(
    task: Source, *, n: int = 1, alpha: float = 1.0, gamma: float = 0.999, wrong: float = -0.3, adv: float = 0.1, ce: float = 0.5,
    value_steps: int = 20, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """B-Coder: off-policy Q-learning on demonstrations and on replies of the starting policy.

    Q(s, a) = alpha (l(s, a) - max_a' l(s, a')) + V(s),   l the policy's logits, V = 1 - softabs(the critic's output) <= 1
    L_Q = mean over replies of mean over tokens of ( r_t + gamma sg[Q(s_{t+1}, a^_{t+1})] - Q(s_t, y_t) )^2
    a^ = the starting policy's likeliest token, a fixed greedy backup;   r is 1 for a right reply, `wrong` for a wrong one, at its end
    First V alone learns L_Q. Then pi = softmax(Q / alpha) = softmax(l) and V learn
    L_Q + adv (mean over demonstrations of sum |A(s_t, y*_t)|) + ce (mean over demonstrations of -log pi(y*))

    The constants are the paper's (its section 3.1 and appendix H): half of a batch are demonstrations, rewards 1 and -0.3. It
    prints softabs with + ln 2, which would keep V below -0.38; here it is 0 at 0, as an absolute value is. Scores between 0
    and 1 are spread from `wrong` to 1; the paper's -0.6 and -1 for programs that do not run or compile have no counterpart.
    n: replies of the starting policy for each demonstration. alpha: the temperature that ties logits to advantages.
    gamma: discount per token. wrong: reward of a wrong reply. adv: weight of the demonstrations' lost advantage.
    ce: weight of imitating the demonstrations. value_steps: steps in which V learns alone, at least 1 (the
    paper's are 18k of 28k); the policy begins in the last of them.
    critic_lr: multiplies the learning rate for V.
    Departures: V is a copy of the model with a linear head that goes on learning, where the paper freezes it after its own stage
    and adds a residual head to the policy (it names both ways); replies are drawn as they are needed, where the paper collects
    256 a problem beforehand. Ranking replies by the reward that Q implies is left out.
    """
    if value_steps < 1:
        raise ValueError(f"value_steps is {value_steps}; the value learns for at least 1 step before the policy moves")
    rooms = {
        "draw": demos(task),
        "rollout": join(given("demo"), sample(n, temperature=temperature, who="ref")),
        "score": chain(verify(task, author="ref"), spread(wrong, MOST)),
    }
    learn_value = Phase(
        name="value",
        times=before(value_steps),
        credit=chain(_backups(), _both("value")),
        learn=Learn(dueling_value(alpha, gamma, MOST)),
        **rooms,  # type: ignore[arg-type]
    )
    main = Phase(
        times=after(value_steps - 1),
        credit=chain(_backups(), _both("q"), _both("value"), member("best", "demo"), member("sft", "demo")),
        learn=Learn(
            dueling_policy(alpha, gamma, MOST),
            dueling_value(alpha, gamma, MOST),
            no_advantage_lost(alpha, coef=adv),
            imitate(coef=ce, norm=seq_sum_mean),
        ),
        **rooms,  # type: ignore[arg-type]
    )
    return Method(cast=stage(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)), phases=(learn_value, main))


def _backups() -> Part:
    """Rewards, tokens, and the token that the starting policy would have chosen: what a backup reads."""
    return chain(
        token_ids(), streams("ref", greedy="backup"), token_rewards(score="spread", kl=None, author=("demo", "ref"))
    )


def _both(term: str) -> Part:
    return member(term, "demo", "ref")
