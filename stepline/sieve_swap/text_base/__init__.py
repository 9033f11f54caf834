"""Bases of how-to texts: read from many forms, built once on disk, searched by meaning."""

from stepline.sieve_swap.text_base.base import Document, open_base
from stepline.sieve_swap.text_base.build import build_base, open_or_build_base
from stepline.sieve_swap.text_base.readers import read_source

__all__ = ["Document", "build_base", "open_base", "open_or_build_base", "read_source"]
