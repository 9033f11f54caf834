"""METEOR 1.5 for English without Java: exact, stem, synonym and paraphrase matches, aligned by beam
search.

Source: Denkowski and Lavie, "Meteor Universal", WMT 2014, and the behaviour of the program
meteor-1.5.jar as pycocoevalcap runs it (`-l en -norm`).
"""

from stepline.evaluate.meteor.score import Meteor, MeteorScores

__all__ = ["Meteor", "MeteorScores"]
