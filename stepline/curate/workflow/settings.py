"""Settings of `stepline curate workflow`: those of its recipe, and of the review."""

from typing import Annotated

from pydantic import Field

from stepline.curate.stage import Recipe
from stepline.settings import Count, Seed, Settings


class WorkflowSettings(Settings):
    """What people are asked, and which videos no network is trained on."""

    # that people are asked about at most. At 10 s each, 900 are two and a half hours
    clips: Count = 900
    # people that each clip is for. From the second one on their agreement is known
    people: Annotated[int, Field(ge=1, le=20)] = 2
    # share of the videos, by their ids, on which networks are measured
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    seed: Seed = 0  # of what is drawn: the held-out videos, the intervals


class WorkflowRunSettings(Settings):
    """The section of the workflow alone."""

    workflow: WorkflowSettings = WorkflowSettings()


class WorkflowRecipe(Recipe, WorkflowRunSettings):
    """A recipe, and what follows its data set."""

    @property
    def curation(self) -> Recipe:
        """The recipe alone."""
        fields = {}
        for name in Recipe.model_fields:
            fields[name] = getattr(self, name)
        return Recipe(**fields)
