"""S3D-G, the network of HowTo100M's features: `load_s3d` is the backbone, `S3D` and `Words` are its towers to train."""

from stepline.vision.s3d.backbone import Dictionary, Words, read_dictionary, read_s3d
from stepline.vision.s3d.network import S3D, FoldedS3D

__all__ = ["S3D", "Dictionary", "FoldedS3D", "Words", "read_dictionary", "read_s3d"]
