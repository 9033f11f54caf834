"""Files anywhere by URL, whole or not at all, with second tries of what may work the next time."""

from stepline.curate.places.listing import Found, stamp_of
from stepline.curate.places.place import DEFAULTS, Place

__all__ = ["DEFAULTS", "Found", "Place", "stamp_of"]
