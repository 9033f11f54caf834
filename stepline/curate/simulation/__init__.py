"""A run on a cluster that nobody has at hand, played through: what breaks, what waits, how long it takes."""

from stepline.curate.simulation.cluster import Cluster, Outcome
from stepline.curate.simulation.play import simulate
from stepline.curate.simulation.workload import Workload, workload

__all__ = ["Cluster", "Outcome", "Workload", "simulate", "workload"]
