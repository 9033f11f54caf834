"""The steps of a video from Python, each with the words that it rests on: python
examples/steps_of_a_video.py VIDEO."""

import sys

import stepline

record = stepline.steps(sys.argv[1])
for step in record.steps:
    print(f"{step.status:9}  {step.at or 0:6.1f} s  {step.text}")
    for index in step.sources:
        print(f"{'':21}said: {record.transcript.sentences[index].text}")
