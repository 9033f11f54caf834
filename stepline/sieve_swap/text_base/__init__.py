"""Bases of how-to texts: read from many forms, built once on disk, searched by meaning."""

from stepline.sieve_swap.text_base.lines import Document, Rejected, TextStep

__all__ = ["Document", "Rejected", "TextStep"]
