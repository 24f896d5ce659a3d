"""A fixed set of guessing games, so that tasks come back: burnish train arpo_replay --task examples/guess_rows.py:Games

32 games of 12 to 15 numbers in 4 guesses to train on, and 100 others to evaluate on. Hard has 48 to 63 numbers in 6
guesses: most groups of the embedded model fail as a whole there.
"""

from burnish.envs.guess import Game, Guess


class Games:
    """Find a hidden number; the same 32 games come back."""

    games = Guess(level=2)

    @staticmethod
    def tasks(split):
        return [{"split": split, "number": i} for i in range(32 if split == "train" else 100)]

    def reset(self, task, seed):
        self.game = Game(self.games.problem(task["split"], task["number"]))
        return self.game.reset()

    def step(self, action):
        return self.game.step(action)

    def key(self):
        return self.game.key()


class Hard(Games):
    """Find a number among 48 to 63; the same 32 games come back."""

    games = Guess(level=4)
