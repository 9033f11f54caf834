"""Settings of the forecast; none of them changes the dataset."""

from typing import Annotated

from pydantic import Field

from stepline.settings import Count, NonNegative, Settings


class ForecastSettings(Settings):
    """What `--dry-run` samples, and what things cost; prices in one currency of your own."""

    sample: Annotated[int, Field(ge=6)] = 24  # videos that are worked on; their results are not made again
    seed: int = 0  # of the sample and the draws
    cores: tuple[Count, ...] = (1, 16, 128)  # for which hours are told, beside this machine's
    draws: Annotated[int, Field(ge=100)] = 1000  # of the bootstrap
    core_hour: NonNegative = 0.04  # one core for one hour
    gpu_hour: NonNegative = 2.0  # one GPU for one hour, where the engine uses some
    million_tokens: NonNegative = 0.5  # of a language model, in and out together
    gigabyte_month: NonNegative = 0.02  # of storage; a month is counted
