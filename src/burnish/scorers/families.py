"""Imports every family of scorers, so that the table is whole."""

from burnish.scorers import aspects as aspects
from burnish.scorers import blends as blends
from burnish.scorers import checklists as checklists
from burnish.scorers import code as code
from burnish.scorers import compared as compared
from burnish.scorers import confidence as confidence
from burnish.scorers import diversity as diversity
from burnish.scorers import evolving as evolving
from burnish.scorers import fine_grained as fine_grained
from burnish.scorers import induced as induced
from burnish.scorers import judged as judged
from burnish.scorers import lengths as lengths
from burnish.scorers import memory as memory
from burnish.scorers import models as models
from burnish.scorers import panel as panel
from burnish.scorers import plain as plain
from burnish.scorers import prefixes as prefixes
from burnish.scorers import principled as principled
from burnish.scorers import process as process
from burnish.scorers import progress_bonus as progress_bonus
from burnish.scorers import repetition as repetition
from burnish.scorers import reward_models as reward_models
from burnish.scorers import salmon as salmon
from burnish.scorers import success as success
from burnish.scorers import temporal as temporal
