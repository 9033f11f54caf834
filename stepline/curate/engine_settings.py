"""Settings of how a run is carried out: limits of a unit of work, and engines. Engines never decide results."""

from typing import Literal

from stepline.settings import Count, NonNegative, Positive, Settings


class LimitsSettings(Settings):
    """What one unit of work (a stage of a video) may take before it counts as failed."""

    seconds: Positive = 1800.0  # wall seconds; longer is a hang, and the unit's process is killed
    memory: Count = 6144  # MiB of a worker's resident memory; more, and its process is killed
    in_a_row: Count = 100  # units of a stage that fail one after another before the run ends: no fault of theirs
    attempts: Count = 3  # times that a failing unit is tried in all, over every --retry-failed


class EngineSettings(Settings):
    """Where the work is done; none of these settings changes a byte of the dataset."""

    name: Literal["local", "ray"] = "local"  # processes of this machine, or a Ray cluster
    workers: Count | None = None  # processes (local) or actors a stage group (ray); none = one a core
    fewest: Count = 1  # actors a stage group that Ray keeps when there is little to do
    gpus: NonNegative = 0.0  # GPUs an actor whose stages can use one
    cache: Count = 4096  # MiB of remote media that wait on the local disk at once
    ahead: Count = 4  # videos a worker that are open at once; bounds what waits
    address: str | None = None  # of a Ray cluster; none = one is started on this machine
