"""The videos that a run goes over, from wherever they are named: items sorted by id, and what was
refused.

for entry in read_source("s3://bucket/videos"): ...      # VideoItem | Rejected
"""

from stepline.curate.sources.files import relative_address
from stepline.curate.sources.read import read_source

__all__ = ["read_source", "relative_address"]
