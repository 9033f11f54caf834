"""Names of the files in a WYS2 run's folder."""

SETTINGS, VIDEOS = "settings.json", "videos.json"
DETECTOR, SUMMARIZER = "detector.safetensors", "summarizer.safetensors"
