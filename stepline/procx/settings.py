"""Settings of ProcX; nothing heavy is imported here."""

from typing import Literal, TypeAlias

from pydantic import model_validator

from stepline.settings import Count, Settings

AttentionForm: TypeAlias = Literal["key-aware", "vanilla"]
Padding: TypeAlias = Literal["zero", "border"]


class AttentionSettings(Settings):
    """Multi-scale deformable attention: ProcX section 5, equations 9 to 12; sizes as in PDVC's code."""

    width: Count = 512  # D, of queries, memory and output; PDVC's code
    heads: Count = 8  # PDVC's code
    levels: Count = 4  # temporal scales; PDVC's code
    points: Count = 4  # points read a query, head and level; PDVC's code
    form: AttentionForm = "key-aware"  # weights from sampled keys (eq. 12); "vanilla": from the query alone (eq. 10)
    padding: Padding = "zero"  # beyond a level's ends, as the CUDA kernels; "border": as PDVC's code on a CPU

    @model_validator(mode="after")
    def _fits(self) -> "AttentionSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self
