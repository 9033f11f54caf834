"""A folder of records as a library: search for what is done, said and written in its videos."""

from stepline.library.search import Moment, SearchIndex

__all__ = ["Moment", "SearchIndex"]
