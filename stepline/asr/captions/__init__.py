"""Existing captions in place of recognition: srt, vtt, csv and JSON of five kinds, repaired and cut into sentences."""

from stepline.asr.captions.read import read_captions

__all__ = ["read_captions"]
