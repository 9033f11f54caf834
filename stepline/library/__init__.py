"""A folder of records as a library: full-text and vector search over its videos."""

from stepline.library.search import Moment, SearchIndex

__all__ = ["Moment", "SearchIndex"]
