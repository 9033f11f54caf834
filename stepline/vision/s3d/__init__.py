"""S3D-G, the network of HowTo100M's features: `load_s3d` is the backbone, `S3D` and `TextTower` its two towers."""

from stepline.vision.s3d.backbone import TextTower, WordDictionary, read_dictionary, read_s3d
from stepline.vision.s3d.network import S3D, FoldedS3D

__all__ = ["S3D", "FoldedS3D", "TextTower", "WordDictionary", "read_dictionary", "read_s3d"]
