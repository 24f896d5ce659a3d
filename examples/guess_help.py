"""Guessing games whose states are named by what is left, for self_regulating: --task examples/guess_help.py:Games

Games of 6 or 7 numbers in 3 guesses. A helper learns in which states a stronger model is worth asking; the states of
all games are pooled (--pool all), so each is met often.
"""

from burnish.envs.guess import Game, Guess

GAMES = Guess(level=1)


class Games:
    """Find a hidden number; a state is how many numbers and guesses are left."""

    @staticmethod
    def tasks(split):
        return [{"split": split, "number": i} for i in range(2000 if split == "train" else 100)]

    def reset(self, task, seed):
        self.game = Game(GAMES.problem(task["split"], task["number"]))
        return self.game.reset()

    def step(self, action):
        return self.game.step(action)

    def key(self):
        game = self.game
        return f"{game.high - game.low + 1} numbers, {game.hidden.guesses - game.made} guesses"
