"""Names of the files in a training run's folder."""

DETECTOR, RUN, VIDEOS = "detector.safetensors", "run.json", "videos.json"
