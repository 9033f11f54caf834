"""A folder of records as a library: search for what is done, said and written in its videos."""

from stepline.library.moments import Moment
from stepline.library.search import SearchIndex

__all__ = ["Moment", "SearchIndex"]
