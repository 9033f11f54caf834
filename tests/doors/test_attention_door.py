"""Lite-DETR's key-aware deformable attention, a picture one row high, and ours.

The expected numbers are what `MSDeformAttn(key_aware=True)` of IDEA-Research/Lite-DETR @6392353 gave
on a CPU.
"""

import json
from pathlib import Path

import attention_files as files
import pytest
import torch

from stepline.models.procx.deformable_attention import DeformableAttention
from stepline.models.procx.settings import AttentionSettings

EXPECTED = json.loads((Path(__file__).parent / "attention_numbers.json").read_text())


@pytest.mark.parametrize("form", EXPECTED)
def test_key_aware_attention_equals_lite_detrs(form):
    sizes = {"width": files.WIDTH, "heads": files.HEADS, "points": files.POINTS}
    layer = DeformableAttention(AttentionSettings(**sizes, levels=len(files.LENGTHS)))
    layer.load_state_dict(files.state())
    queries, centers, boxes, rows, pad = files.inputs()
    references = boxes if form == "boxes" else centers
    with torch.no_grad():
        found = layer(queries, references, rows, files.LENGTHS, pad if "padding" in form else None)
    wanted = torch.tensor(EXPECTED[form]).view_as(found)
    torch.testing.assert_close(found, wanted, atol=5e-6, rtol=1e-5)
    assert len({tuple(numbers) for numbers in EXPECTED.values()}) == 3
