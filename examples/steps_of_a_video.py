"""The steps of a video from Python: python examples/steps_of_a_video.py VIDEO."""

import sys
from pathlib import Path

from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import understand

video = Path(sys.argv[1])
understanding = understand(Request(video, id=video.stem), StepsSettings())
sentences = understanding.record.transcript.sentences
for step in understanding.record.steps:
    print(f"{step.status:9}  {step.at or 0:6.1f} s  {step.text}")
    for index in step.sources:
        print(f"{'':21}said: {sentences[index].text}")
