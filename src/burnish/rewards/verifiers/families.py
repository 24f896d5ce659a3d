"""Imports every family of verifiers, so that the table is whole."""

from burnish.rewards.verifiers import answers as answers
from burnish.rewards.verifiers import choice as choice
from burnish.rewards.verifiers import citations as citations
from burnish.rewards.verifiers import formats as formats
from burnish.rewards.verifiers import instructions as instructions
from burnish.rewards.verifiers import lean as lean
from burnish.rewards.verifiers import logic as logic
from burnish.rewards.verifiers import patches as patches
from burnish.rewards.verifiers import programs as programs
from burnish.rewards.verifiers import puzzles as puzzles
from burnish.rewards.verifiers import retrieval as retrieval
from burnish.rewards.verifiers import rewriting as rewriting
from burnish.rewards.verifiers import sources as sources
from burnish.rewards.verifiers import tables as tables
from burnish.rewards.verifiers import texts as texts
from burnish.rewards.verifiers import tool_calls as tool_calls
from burnish.rewards.verifiers import toolrl as toolrl
from burnish.rewards.verifiers import world as world
