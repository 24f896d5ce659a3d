"""What a trace's note may say, with a sentence for each key: facts about it that are neither scores nor streams.

A key that only one paper writes is declared in its file, as `NOTES = {key: sentence}`. The store keeps notes as JSON;
docs/metrics.md lists them.
"""

from __future__ import annotations

NOTES = {
    "stopped": "why the reply ended: stop, length or enough; of an episode why it ended",
    "why": "the verifier's reason, or why a reply could not be scored",
    "failed": "why a reply could not be scored; it has no reward",
    "failure_counted": "true where the failure is among those that the run has reported",
    "done": "true where the environment ended the episode itself",
    "turns": "how many replies the player gave in the episode",
    "cut": "how many replies of the episode ran into max_new_tokens",
    "keys": "the name of the state before each reply of an episode, where the environment names its states",
    "valid": "of each reply of an episode, whether the environment executed it",
    "outcome": "won, lost or aborted, as the environment says",
    "answer": "what an episode answered in the end",
    "metrics": "numbers that the environment reported of the episode",
    "seat": "the seat that the player had in a game of several",
    "against": "who had the other seats of the game",
    "ended": "whether the episode was over after this past reply",
    "turn": "the number of the turn that the trace is about",
    "episode": "the number of the episode of which the trace is one reply",
    "k": "the place of the reply within its episode",
    "ends": "the positions of the last tokens of its steps",
    "weights": "the weight of each message of a demonstration",
    "cuts": "the positions at which the reply was cut, to go on from there several times",
    "of": "the index of the trace whose beginning a probe continues",
    "at": "the position at which a probe continues that trace",
    "visits": "how often the tree search visited the node",
    "leads": "by how much it leads each reply of its group, in their order",
    "preferred": "its place in its group, and its chances against the replies of all places",
    "principles": "its lead over each other reply (by index) under each principle",
    "critique": "what a judge wrote about it",
    "ratings": "its rating by each aspect, item or principle",
    "span": "the largest difference that two of its ratings can have",
    "written_by": "the model that wrote it, where several do",
    "asked_under": "the principle under which it was asked for",
}
