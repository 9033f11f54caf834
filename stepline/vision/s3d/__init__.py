"""S3D-G, the network of HowTo100M's features: `load_s3d` is the backbone, `S3D` and `Words` are its towers to train."""

from stepline.vision.s3d.folded import FoldedS3D
from stepline.vision.s3d.network import S3D
from stepline.vision.s3d.weights import read_s3d
from stepline.vision.s3d.words import Dictionary, Words, read_dictionary

__all__ = ["S3D", "Dictionary", "FoldedS3D", "Words", "read_dictionary", "read_s3d"]
