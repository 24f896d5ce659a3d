"""Imports every family of verifiers, so that the table is whole."""

from burnish.verifiers import answers as answers
from burnish.verifiers import choice as choice
from burnish.verifiers import citations as citations
from burnish.verifiers import formats as formats
from burnish.verifiers import instructions as instructions
from burnish.verifiers import lean as lean
from burnish.verifiers import logic as logic
from burnish.verifiers import patches as patches
from burnish.verifiers import programs as programs
from burnish.verifiers import puzzles as puzzles
from burnish.verifiers import retrieval as retrieval
from burnish.verifiers import rewriting as rewriting
from burnish.verifiers import sources as sources
from burnish.verifiers import table_answers as table_answers
from burnish.verifiers import tables as tables
from burnish.verifiers import texts as texts
from burnish.verifiers import tool_calls as tool_calls
from burnish.verifiers import toolrl as toolrl
from burnish.verifiers import world as world
