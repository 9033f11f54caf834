"""Materials and tools of the work, with amounts, from what is said in the whole narration."""

from stepline.writing.materials.collect import NeededThings, find_materials, materials_within

__all__ = ["NeededThings", "find_materials", "materials_within"]
