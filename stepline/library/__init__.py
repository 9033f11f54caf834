"""A folder of records as a library: full-text and vector search over its videos."""

from stepline.library.moments import Moment
from stepline.library.search import SearchIndex

__all__ = ["Moment", "SearchIndex"]
