"""The videos that a run goes over, from wherever they are named: items sorted by id, and what was
refused.

for entry in read_source("s3://bucket/videos"): ...      # VideoItem | Rejected
"""
