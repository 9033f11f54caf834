"""METEOR 1.5 for English, without Java: exact, stem, synonym and paraphrase matches, beam search,
one score.

Source: Denkowski and Lavie, "Meteor Universal", WMT 2014, and the behaviour of the program
meteor-1.5.jar as pycocoevalcap runs it (`-l en -norm`).
"""

from stepline.evaluate.meteor.meteor import Meteor, MeteorScores

__all__ = ["Meteor", "MeteorScores"]
