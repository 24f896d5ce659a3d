"""A fixed set of guessing games, so that tasks come back: burnish train arpo_replay --task examples/guess_rows.py:Games

32 games of 12 to 15 numbers in 4 guesses to train on, and 100 others to evaluate on.
"""

from burnish.tasks.guess import Game, Guess

GAMES = Guess(level=2)


class Games:
    """Find a hidden number; the same 32 games come back."""

    @staticmethod
    def tasks(split):
        return [{"split": split, "number": i} for i in range(32 if split == "train" else 100)]

    def reset(self, task, seed):
        self.game = Game(GAMES.problem(task["split"], task["number"]))
        return self.game.reset()

    def step(self, action):
        return self.game.step(action)

    def key(self):
        return self.game.key()
