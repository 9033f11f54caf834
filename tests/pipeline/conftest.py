"""What the pictures of the demo video say, read once for all tests of the main job."""

import pytest

from stepline.cli.steps import DEMO_VIDEO
from stepline.media import probe
from stepline.pipeline.pictures import extract_features
from stepline.pipeline.request import Request, StepsSettings


@pytest.fixture(scope="session")
def demo_pictures():
    settings = StepsSettings()
    return extract_features(
        Request(DEMO_VIDEO, "demo"), probe(DEMO_VIDEO, settings.media), settings
    )
