"""Training of the narration tagger: narrations marked by people, labels, the loop.

python -m lab.writer_training.train NARRATION ... --out RUN [--set epochs=3]
"""
